"""The store: a run's immutable objects under keys, durable when `commit` returns, on any kind of storage.

A key is a relative path with forward slashes (`rollouts/step-000012.parquet`); no part of it starts with a dot. A kind
of storage adds the requests at the end of `Store`; the promises are kept here.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import logging
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from raypoly.core.errors import StorageError
from raypoly.core.text import duration
from raypoly.run.store.lease import is_alive
from raypoly.run.store.location import Location, StorageOptions

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
DAMAGED = "damaged/"
"""The prefix that damaged objects are moved to. They are never deleted."""
PART = 8 << 20
"""The most bytes that one of several requests moves, so that its time is bounded however large the object is."""
_FIRST_PATIENCE = 15.0  # seconds for the very first request, so that a wrong address is found soon
NO_CONDITION = "the server has no conditional writes (If-None-Match), or ignores them"
USE_OTHER = "use storage that has them"
_AGAIN = "run the same command again when it is back"


@dataclass(frozen=True)
class DamagedObject:
    key: str
    moved_to: str
    reason: str


@dataclass(frozen=True)
class Pieces:
    """Content that is made while it is written, and once more where a request is repeated."""

    size: int
    """Bytes."""
    make: Callable[[], Iterator[bytes]]
    """Each piece has at most `PART` bytes."""


Content = bytes | Path | Pieces


class RequestFailed(Exception):
    """A request failed. It may or may not have taken effect."""

    def __init__(self, reason: str, hint: str = "", transient: bool = True) -> None:
        """`hint`: what the user can do. `transient`: whether the same request may succeed later."""
        super().__init__(reason)
        self.reason, self.hint, self.transient = reason, hint, transient


class Store(ABC):
    """One run's objects. Where the storage fails, a method raises `StorageError`, and nothing committed is lost."""

    one_request = sys.maxsize
    """The most bytes of an object that one request writes, so that it can be a request that only creates."""

    def __init__(self, location: Location, workspace: Path, options: StorageOptions | None = None) -> None:
        self.location = location
        self.workspace = workspace
        """For files that are written piece by piece: the run folder if it is local, else one in the scratch."""
        self.options = options or StorageOptions()
        self.damaged: list[DamagedObject] = []
        self.fence: Callable[[], None] = lambda: None
        """Called before each request that changes something; raises if this process may not write."""
        self._reached = False
        self._fetched = workspace / f"fetched-{os.getpid()}"

    @property
    def uri(self) -> str:
        return str(self.location)

    def place(self, key: str) -> str:
        """An object's full path or URI, for messages."""
        return f"{self.location.plain}/{key}".rstrip("/")

    def with_options(self, options: StorageOptions) -> Self:
        """The same place under other options, without a fence."""
        other = copy.copy(self)
        other.options, other.fence = options, lambda: None
        return other

    def commit(self, key: str, content: bytes | Path) -> None:
        """Make bytes, or a local file's content, the object `key`. It is whole and durable on return; before that it
        does not exist.

        The same bytes may be committed again. Raises `StorageError` if the key holds others: an object never changes.
        """
        if size_of(content) <= self.one_request:
            taken = not self.create(key, content)
        elif taken := self.exists(key):
            taken = self.digest(key)[0] != sha256_of(content)
        else:  # in parts: only the lease and a manifest's checksum protect it from other writers
            self.put_mutable(key, content)
        if taken:
            raise StorageError(
                f"{self.place(key)} is committed with other content and can't be replaced: this is a bug."
            )

    def create(self, key: str, content: bytes | Path) -> bool:
        """Create an object. Whether `key` holds `content` now; False if it held something else."""
        check_key(key)
        return self._do("written", key, lambda: self._created(key, content), changes=True)

    def put_mutable(self, key: str, content: Content) -> None:
        """Replace a derived file (a summary, a report) whole, by bytes, a local file's content, or pieces."""
        check_key(key)
        if isinstance(content, Path):
            try:
                content.open("rb").close()
            except OSError as error:
                raise StorageError(
                    f"{content} could not be read ({error.strerror or error}); check the disk."
                ) from error
        self._do("written", key, lambda: self._put(key, content), changes=True)

    def read(self, key: str) -> bytes:
        """The object's content, unchecked. Raises `StorageError` if it is missing."""
        return self._do("read", check_key(key), lambda: self._get(key))

    def digest(self, key: str) -> tuple[str, int]:
        """SHA-256 (hex) and length in bytes of an object, never held in memory whole. Raises as `read`."""
        sha, size = hashlib.sha256(), 0
        for part in self._read_parts(check_key(key)):
            sha.update(part)
            size += len(part)
        return sha.hexdigest(), size

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """The keys that start with `prefix`, sorted, without half-written files."""
        folder = prefix[: prefix.rfind("/") + 1]
        return tuple(sorted(key for key in self._listed(folder) if key.startswith(prefix)))

    def peek(self) -> tuple[str, ...]:
        """The names of objects and folders at the top, sorted, by one request however large the run is."""
        return self._do("listed", "", lambda: tuple(sorted(self._names())))

    def exists(self, key: str) -> bool:
        return self._do("read", check_key(key), lambda: self._size(key)) is not None

    def delete(self, key: str) -> None:
        """Remove an object whose content is committed elsewhere; it may be gone already."""
        self._do("deleted", check_key(key), lambda: self._delete(key), changes=True)

    def fetch(self, key: str) -> Path:
        """The path on this machine of an object, or of a folder (ends in a slash), for code that reads from a path.

        A remote store makes a copy in the scratch, which the caller has to check. Raises `StorageError` if missing.
        """
        names = self._listed(key) if key.endswith("/") else (check_key(key),)
        if not names:
            raise StorageError(f"{self.place(key)} could not be read: it is missing.")
        for name in names:
            self._download(name, self._fetched / name)
        return self._fetched / key

    def clean(self) -> None:
        """Remove what dead processes left half-written or copied. The lease's owner calls it once."""
        for folder in self.workspace.glob("fetched-*"):
            pid = folder.name.removeprefix("fetched-")
            if pid.isdecimal() and not is_alive(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)

    def quarantine(self, key: str, reason: str) -> None:
        """Move a damaged object under `damaged/`, log it, and remember it in `self.damaged`."""
        names = (f"{DAMAGED}{key}" + (f".{n}" if n else "") for n in itertools.count())
        target = next(name for name in names if not self.exists(name))
        self._move(key, target)
        self.damaged.append(DamagedObject(key, target, reason))
        logger.warning("%s is damaged (%s): moved to %s, going on without it", key, reason, target)

    def _move(self, key: str, target: str) -> None:
        self._do("moved", key, lambda: self._copy(key, target), changes=True)
        self._do("moved", key, lambda: self._delete(key), changes=True)

    def _created(self, key: str, content: bytes | Path) -> bool:
        if self._create(key, content):
            return True
        try:
            # The answer of an earlier try may have been lost: then the object is there, with our own bytes.
            return hashlib.sha256(self._get(key)).hexdigest() == sha256_of(content)
        except FileNotFoundError as error:  # it was deleted, or is being written, between the two requests
            raise RequestFailed("it was there and then was not") from error

    def _read_parts(self, key: str) -> Iterator[bytes]:
        size = self._do("read", key, lambda: self._size(key))
        if size is None:
            raise StorageError(f"{self.place(key)} could not be read: it is missing.")
        for start in range(0, size, PART):
            end = min(start + PART, size)
            yield self._do("read", key, lambda start=start, end=end: self._get(key, start, end))  # type: ignore[misc]

    def _download(self, key: str, path: Path) -> None:
        aside = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("wb") as file:
                for part in self._read_parts(key):
                    file.write(part)
            aside.replace(path)
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(f"{path} could not be written ({reason}); free space, or set run.scratch.") from error

    def _listed(self, folder: str) -> tuple[str, ...]:
        return self._do("listed", folder, lambda: tuple(self._keys(folder)))

    def _do(self, verb: str, key: str, request: Callable[[], _T], changes: bool = False) -> _T:
        """The request's result. A transient failure is repeated, with growing waits, for `options.patience` seconds."""
        patience = self.options.patience if self._reached else min(self.options.patience, _FIRST_PATIENCE)
        started, wait, warned = time.monotonic(), 0.1, False
        while True:
            if changes:  # before each try: this process may have been overtaken while it waited
                self.fence()
            try:
                result = request()
            except FileNotFoundError as error:
                raise StorageError(f"{self.place(key)} could not be {verb}: it is missing.") from error
            except (RequestFailed, OSError) as error:
                failure = error if isinstance(error, RequestFailed) else self._explain(error)
                waited = time.monotonic() - started
                if not failure.transient or waited + wait > patience:
                    hint = failure.hint or f"tried for {duration(waited)}; {_AGAIN}"
                    raise StorageError(f"{self.place(key)} could not be {verb} ({failure.reason}); {hint}.") from error
                if not warned:
                    logger.warning("%s could not be %s (%s): trying again", self.place(key), verb, failure.reason)
                warned = True
                time.sleep(wait)
                wait = min(2 * wait, 10.0)
            else:
                self._reached = True
                return result

    def _explain(self, error: OSError) -> RequestFailed:
        lasting = isinstance(error, PermissionError)
        reason = " ".join(str(error).split())[:200]
        return RequestFailed(reason, "make it readable and writable" if lasting else "", transient=not lasting)

    # The requests: no retries, no further promises. Each may raise `RequestFailed` or `OSError`.

    @abstractmethod
    def _create(self, key: str, content: bytes | Path) -> bool:
        """Write an object if there is none; False if there is one."""

    @abstractmethod
    def _put(self, key: str, content: Content) -> None:
        """Write an object whole, replacing any other."""

    @abstractmethod
    def _get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """An object's content, or bytes `start` to `end` of it. Raises `FileNotFoundError`."""

    @abstractmethod
    def _size(self, key: str) -> int | None:
        """An object's length in bytes; None if there is none."""

    @abstractmethod
    def _keys(self, folder: str) -> Iterable[str]:
        """The keys below a folder (ends in a slash, or is empty), in any order."""

    @abstractmethod
    def _names(self) -> Iterable[str]:
        """The names of the objects and folders at the top."""

    @abstractmethod
    def _delete(self, key: str) -> None:
        """Remove an object; it may be gone already."""

    def _copy(self, key: str, target: str) -> None:
        """Give an object's content a second key. Raises `FileNotFoundError`."""
        self._put(target, self._get(key))


def check_key(key: str) -> str:
    """The key itself. Raises `ValueError` if it could leave the run or hide in it."""
    if not all(part and part[0] != "." for part in key.split("/")):
        raise ValueError(f"{key!r} is no key: give a relative path whose parts don't start with a dot.")
    return key


def size_of(content: Content) -> int:
    if isinstance(content, Pieces):
        return content.size
    return content.stat().st_size if isinstance(content, Path) else len(content)


def sha256_of(content: bytes | Path) -> str:
    """Hex."""
    digest = hashlib.sha256()
    for part in in_parts(content):
        digest.update(part)
    return digest.hexdigest()


def in_parts(content: Content) -> Iterator[bytes]:
    if isinstance(content, Pieces):
        yield from content.make()
    elif isinstance(content, Path):
        with content.open("rb") as file:
            while part := file.read(PART):
                yield part
    else:
        view = memoryview(content)
        yield from (bytes(view[start : start + PART]) for start in range(0, len(view), PART))
