"""Caches folders that take long to make, by content hash, with checksums, safe for several processes at once.

FolderCache(cache_root() / "warm-start").ensure(key, make)      # make(folder) fills an empty folder
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from raypoly.core.errors import UsageError

_MANIFEST = "manifest.json"


class FolderCache:
    """One kind of folder under `root`. `say` prints a line for a person."""

    def __init__(self, root: Path, say: Callable[[str], None] = print) -> None:
        self.root = root
        self.say = say

    def place(self, key: str) -> Path:
        """Where the folder of `key` is, if it is there."""
        return self.root / key[:24]

    def ensure(self, key: str, make: Callable[[Path], None]) -> Path:
        """The sound folder of `key`. If there is none, `make` fills a temporary folder, which is renamed into place.

        Waits for another process that makes the same folder. Raises `UsageError` if the cache can't be written.
        """
        folder = self.place(key)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with _locked(self.root / f"{folder.name}.lock"):
                if (damage := find_damage(folder)) is not None:
                    self._build(folder, damage, make)
        except (PermissionError, NotADirectoryError) as error:
            raise UsageError(
                f"the cache folder {self.root} can't be written: set RAYPOLY_CACHE to one that can."
            ) from error
        return folder

    def _build(self, folder: Path, damage: str, make: Callable[[Path], None]) -> None:
        if folder.exists():
            self.say(f"the cached {folder} is damaged ({damage}): it is made again")
            shutil.rmtree(folder)
        for left in self.root.glob(f".{folder.name}-*"):  # by a process that was killed: this one has the lock
            shutil.rmtree(left, ignore_errors=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=self.root))
        try:
            make(aside)
            _write_manifest(aside)
            aside.rename(folder)
            _sync(self.root)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def find_damage(folder: Path, unread: tuple[str, ...] = ()) -> str | None:
    """What is wrong with a cached folder, in a few words; None if every file matches the manifest.

    `unread`: endings of files that need only be there.
    """
    try:
        promised = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError):
        return "no readable manifest"
    if not isinstance(promised, dict) or not promised:
        return "an empty manifest"
    for name, digest in promised.items():
        path = folder / name
        if not path.is_file() or not (name.endswith(unread) or _digest(path) == digest):
            return f"{name} is not what it was"
    return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock, which the system releases when a process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _write_manifest(folder: Path) -> None:
    """Sync all files, then write a manifest with the SHA-256 of each."""
    manifest = folder / _MANIFEST  # a copy of a cached folder has one already
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != manifest)
    for path in files:
        _sync(path)
    manifest.write_text(json.dumps({str(path.relative_to(folder)): _digest(path) for path in files}, indent=1))
    _sync(manifest)
    _sync(folder)
    folder.chmod(0o755)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
