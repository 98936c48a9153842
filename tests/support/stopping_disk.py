"""Disks that stop at a chosen call, as a dying process, a power cut or a full disk does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from raypoly.run.store.local_store import Disk


class Stopped(BaseException):
    """The process is dead. The product must not catch it."""


class QuickDisk(Disk):
    """A disk that syncs nothing, which is quick. Power cuts are simulated, or not part of the test."""

    def sync(self, file: BinaryIO) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


class StoppingDisk(QuickDisk):
    """Raises `error` at call number `at`, half-way through if that is a write. After a death every call raises."""

    def __init__(self, at: int | None = None, error: BaseException | None = None) -> None:
        self.calls = 0
        self.at = at
        self.error = error or Stopped()

    def _call(self) -> bool:
        """Count the call, and return whether to stop at it."""
        self.calls += 1
        if self.at is not None and self.calls > self.at and isinstance(self.error, Stopped):
            raise self.error
        return self.calls == self.at

    def create(self, path: Path) -> BinaryIO:
        self._stop_here()
        return super().create(path)

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        if self._call():
            super().write(file, data[: len(data) // 2])
            raise self.error
        super().write(file, data)

    def sync(self, file: BinaryIO) -> None:
        self._stop_here()
        super().sync(file)

    def publish(self, aside: Path, path: Path) -> None:
        self._stop_here()
        super().publish(aside, path)

    def replace(self, aside: Path, path: Path) -> None:
        self._stop_here()
        super().replace(aside, path)

    def sync_folder(self, folder: Path) -> None:
        self._stop_here()
        super().sync_folder(folder)

    def make_folder(self, path: Path) -> None:
        self._stop_here()
        super().make_folder(path)

    def remove(self, path: Path) -> None:
        self._stop_here()
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        self._stop_here()
        super().remove_folder(path)

    def _stop_here(self) -> None:
        if self._call():
            raise self.error


class PoweredDisk(StoppingDisk):
    """On `lose_power`, undoes every name, removal and content that was not synced."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__(at)
        self._undo: list[tuple[Path, Callable[[], object]]] = []
        self._synced: set[int] = set()

    def sync(self, file: BinaryIO) -> None:
        super().sync(file)
        self._synced.add(os.fstat(file.fileno()).st_ino)

    def publish(self, aside: Path, path: Path) -> None:
        assert aside.stat().st_ino in self._synced, "a name was given to content that is not on the disk"
        super().publish(aside, path)
        self._undo.append((path.parent, path.unlink))

    def replace(self, aside: Path, path: Path) -> None:
        old = path.read_bytes() if path.exists() else None
        super().replace(aside, path)
        self._undo.append((path.parent, path.unlink if old is None else lambda: path.write_bytes(old)))

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self._undo.append((path.parent, lambda: shutil.rmtree(path, ignore_errors=True)))

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        self._undo = [(parent, undo) for parent, undo in self._undo if parent != folder]

    def remove(self, path: Path) -> None:
        old = path.read_bytes() if path.exists() and path.name[0] != "." else None
        super().remove(path)
        if old is not None:
            self._undo.append((path.parent, lambda: _write(path, old)))

    def lose_power(self) -> None:
        for _, undo in reversed(self._undo):
            undo()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
