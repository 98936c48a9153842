"""The store on a local (or network-mounted) file system.

A commit writes a file aside, syncs it, gives it its name without replacing anything, and syncs the folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from raypoly.core.errors import StorageError
from raypoly.run.store.lease import is_alive
from raypoly.run.store.location import Location
from raypoly.run.store.store import Store, check_key

_CHUNK = 16 << 20
_ASIDE = re.compile(r"^\..+\.(?P<host>[^.]*)-(?P<pid>\d+)-\d+\.part$")
_STALE_SECONDS = 3600.0
_HINTS = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "your quota is used up: free some space and run the same command again",
    errno.EROFS: "it is mounted read-only: make it writable and run the same command again",
    errno.EACCES: "make it readable and writable and run the same command again",
}


_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Disk:
    """The POSIX calls that change something, one method each; each may raise `OSError`.

    A crash, a full disk or a power cut strikes between two of them: tests subclass this and stop at each in turn.
    """

    def create(self, path: Path) -> BinaryIO:
        """Open a new file for writing; `FileExistsError` if there is one."""
        return open(path, "xb", buffering=0)

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]

    def sync(self, file: BinaryIO) -> None:
        """Return when the file's content has reached the disk."""
        os.fsync(file.fileno())

    def publish(self, aside: Path, path: Path) -> None:
        """Give a finished file its name; `FileExistsError` if the name is taken."""
        try:
            os.link(aside, path)  # unlike rename, never replaces: two writers can't both win
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            os.rename(aside, path)
        else:
            self.remove(aside)

    def replace(self, aside: Path, path: Path) -> None:
        """Give a file its name, replacing any file of that name."""
        os.replace(aside, path)

    def sync_folder(self, folder: Path) -> None:
        """Return when the folder's entries have reached the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems have no such call, and need none
                raise
        finally:
            os.close(descriptor)

    def make_folder(self, path: Path) -> None:
        """Make one folder, whose parent exists."""
        path.mkdir(exist_ok=True)

    def remove(self, path: Path) -> None:
        """Remove a file; it may be gone already."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; leave one that is gone or not empty."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY):
                raise


class LocalStore(Store):
    """Objects as files under one folder."""

    def __init__(self, root: Path, disk: Disk | None = None, make: bool = True) -> None:
        """`make=False`: do not make the folder, to look into one that may not exist."""
        super().__init__(Location.parse(root), root)
        self.root = root
        self._disk = disk or Disk()
        self._host = re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname())
        self._counter = itertools.count()
        if make:
            with self._explained("made", root):
                root.mkdir(parents=True, exist_ok=True)

    def commit(self, key: str, data: bytes) -> None:
        path = self.local_path(key)
        with self._explained("written", path):
            aside, taken = self._write_aside(path, [data]), False
            try:
                self._disk.publish(aside, path)
            except FileExistsError:
                self._disk.remove(aside)
                taken = True
            self._disk.sync_folder(path.parent)  # in either case the object of that name is durable now
            if taken and path.read_bytes() != data:
                raise StorageError(f"{path} is committed with other content and can't be replaced: this is a bug.")

    def put_mutable(self, key: str, data: bytes) -> None:
        self._put(key, [data])

    def put_mutable_file(self, key: str, source: Path) -> None:
        self._put(key, _chunks(source))

    def _put(self, key: str, chunks: Iterable[bytes]) -> None:
        path = self.local_path(key)
        with self._explained("written", path):
            aside = self._write_aside(path, chunks)
            self._disk.replace(aside, path)
            self._disk.sync_folder(path.parent)

    def read(self, key: str) -> bytes:
        path = self.local_path(key)
        with self._explained("read", path):
            return path.read_bytes()

    def digest(self, key: str) -> tuple[str, int]:
        path = self.local_path(key)
        with self._explained("read", path), path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()

    def list(self, prefix: str = "") -> tuple[str, ...]:
        folder = self.root / prefix.rpartition("/")[0]
        with self._explained("listed", folder):
            keys = (path.relative_to(self.root).as_posix() for path in _files(folder) if path.name[0] != ".")
            return tuple(sorted(key for key in keys if key.startswith(prefix)))

    def peek(self) -> tuple[str, ...]:
        with self._explained("listed", self.root):
            names = os.listdir(self.root) if self.root.exists() else []
            return tuple(sorted(name for name in names if name[0] != "."))

    def exists(self, key: str) -> bool:
        return self.local_path(key).is_file()

    def delete(self, key: str) -> None:
        path = self.local_path(key)
        with self._explained("deleted", path):
            self._disk.remove(path)
            self._disk.remove_folder(path.parent)

    def fetch(self, key: str) -> Path:
        path = self.local_path(key.removesuffix("/"))
        with self._explained("read", path):
            path.stat()
        return path

    def local_path(self, key: str) -> Path:
        """Where an object is or would be."""
        return self.root.joinpath(*check_key(key).split("/"))

    def _move(self, key: str, target: str) -> None:
        source, path = self.local_path(key), self.local_path(target)
        with self._explained("moved", source):
            self._make_folder(path.parent)
            self._disk.replace(source, path)
            self._disk.sync_folder(path.parent)
            self._disk.remove_folder(source.parent)

    def clean(self) -> None:
        with self._explained("cleaned", self.root):
            for path in _files(self.root):
                aside = _ASIDE.match(path.name)
                if aside and self._is_left_behind(path, aside["host"], int(aside["pid"])):
                    self._disk.remove(path)

    def _is_left_behind(self, path: Path, host: str, pid: int) -> bool:
        """Whether its writer is dead. Other commands (a report) may be writing derived files now."""
        if host == self._host and not is_alive(pid):
            return True
        try:
            return time.time() - path.stat().st_mtime > _STALE_SECONDS
        except FileNotFoundError:  # its writer has just finished it
            return False

    def _write_aside(self, path: Path, chunks: Iterable[bytes]) -> Path:
        """Write and sync a file beside `path`, under a name that readers ignore."""
        self._make_folder(path.parent)
        aside = path.with_name(f".{path.name}.{self._host}-{os.getpid()}-{next(self._counter)}.part")
        try:
            with self._disk.create(aside) as file:
                for chunk in chunks:
                    self._disk.write(file, chunk)
                self._disk.sync(file)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to raise; `clean` removes the file
                self._disk.remove(aside)
            raise
        return aside

    def _make_folder(self, folder: Path) -> None:
        """Make a folder and its parents below the root, each entry durable."""
        if folder.is_dir():
            return
        if folder != self.root:
            self._make_folder(folder.parent)
        self._disk.make_folder(folder)
        self._disk.sync_folder(folder.parent)

    @contextlib.contextmanager
    def _explained(self, verb: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = _HINTS.get(error.errno or 0, "check the disk and run the same command again")
            raise StorageError(f"{path} could not be {verb} ({error.strerror or error}); {hint}.") from error


def _files(folder: Path) -> Iterator[Path]:
    """Every file below `folder`; none if it does not exist."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir():
            yield from _files(Path(entry.path))
        else:
            yield Path(entry.path)


def _chunks(source: Path) -> Iterator[bytes]:
    with open(source, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
