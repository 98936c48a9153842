"""Caches: folders that take long to make, kept for the user, and values in memory.

FolderCache(cache_root() / "warm-start").ensure(key, make)      # make(folder) fills an empty folder
suites = LRUCache[str, TestSuite](count=256, size=1 << 20)
suites.put("key", suite, len(suite.source))
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from raypoly.core.errors import UsageError

_MANIFEST = "manifest.json"
_ENDS = 1 << 20
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def cache_root() -> Path:
    """`$RAYPOLY_CACHE`, else `$XDG_CACHE_HOME/raypoly`, else `~/.cache/raypoly`."""
    if own := os.environ.get("RAYPOLY_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "raypoly"


class FolderCache:
    """One kind of folder under `root`, by content hash, with checksums, safe for several processes at once."""

    def __init__(self, root: Path, say: Callable[[str], None] = print) -> None:
        self.root = root
        self.say = say

    def place(self, key: str) -> Path:
        return self.root / key[:24]

    def ensure(self, key: str, make: Callable[[Path], None]) -> Path:
        """The sound folder of `key`, made if there is none; waits for another process that makes it.

        Raises `UsageError` if the cache can't be written.
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
    """What is wrong with a cached folder; None if its files match the manifest, or exist with an ending of `unread`."""
    try:
        promised = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError):
        return "no readable manifest"
    if not isinstance(promised, dict) or not promised:
        return "an empty manifest"
    for name, digest in promised.items():
        path = folder / name
        if not path.is_file() or not (name.endswith(unread) or file_sha256(path) == digest):
            return f"{name} is not what it was"
    return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # the system releases it when a process dies
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def folder_fingerprint(folder: Path) -> str:
    """SHA-256, hex, over the names and sizes of a folder's files, and the first and last MiB of each: another model is
    told at once, however large it is."""
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.iterdir() if file.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as content:
            digest.update(content.read(_ENDS))
            content.seek(max(0, size - _ENDS))
            digest.update(content.read(_ENDS))
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hex."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _write_manifest(folder: Path) -> None:
    # Sync all files, then write a manifest with the SHA-256 of each.
    manifest = folder / _MANIFEST  # a copy of a cached folder has one already
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != manifest)
    for path in files:
        _sync(path)
    manifest.write_text(json.dumps({str(path.relative_to(folder)): file_sha256(path) for path in files}, indent=1))
    _sync(manifest)
    _sync(folder)
    folder.chmod(0o755)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LRUCache(Generic[K, T]):
    """The values used last, at most `count`, of at most `size` together; the newest stays, however large."""

    def __init__(self, count: int, size: float = math.inf) -> None:
        self._count, self._size = count, size
        self._held: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._sum = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: K) -> bool:
        return key in self._held

    def __getitem__(self, key: K) -> T:
        self._held.move_to_end(key)
        return self._held[key][0]

    def put(self, key: K, value: T, size: int = 0) -> T:
        self._sum += size - self._held.pop(key, (value, 0))[1]
        self._held[key] = (value, size)
        while len(self._held) > self._count or (self._sum > self._size and len(self._held) > 1):
            _, (_, gone) = self._held.popitem(last=False)
            self._sum -= gone
        return value
