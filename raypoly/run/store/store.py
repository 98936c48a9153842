"""The store: immutable objects under keys, durable when `commit` returns, on any kind of storage.

A key is a relative path with forward slashes (`rollouts/step-000012.parquet`); no part of it starts with a dot.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from raypoly.run.store.location import Location

logger = logging.getLogger(__name__)

DAMAGED = "damaged/"
"""The prefix that damaged objects are moved to. They are never deleted."""


@dataclass(frozen=True)
class DamagedObject:
    """One quarantined object, whose content can't be trusted."""

    key: str
    """Its key before."""
    moved_to: str
    """Its key now, under `damaged/`."""
    reason: str
    """One sentence for a person."""


class Store(ABC):
    """One run's objects. If the storage fails, a method raises `StorageError`, and nothing committed is lost."""

    def __init__(self, location: Location, workspace: Path) -> None:
        self.location = location
        self.workspace = workspace
        """A folder on this machine, named like the run, for files that are written piece by piece.

        It is the run folder itself if that is local, else a folder in the scratch, which may be lost with the machine.
        """
        self.damaged: list[DamagedObject] = []
        """The objects that this process has quarantined, for the report to the user."""

    @property
    def uri(self) -> str:
        """The path or URI, for people and for `open_store`."""
        return str(self.location)

    def place(self, key: str) -> str:
        """An object's full path or URI, for messages."""
        return f"{self.location.plain}/{key}"

    @abstractmethod
    def commit(self, key: str, data: bytes) -> None:
        """Make `data` the object `key`. It is whole and durable on return; before that it does not exist.

        Committing the same bytes again does nothing. Raises `StorageError` if the key holds other bytes: an object
        never changes.
        """

    @abstractmethod
    def put_mutable(self, key: str, data: bytes) -> None:
        """Replace a derived file (a summary, a report) whole: a reader sees the old content or the new."""

    @abstractmethod
    def put_mutable_file(self, key: str, source: Path) -> None:
        """`put_mutable` of a local file's content without holding it in memory."""

    @abstractmethod
    def read(self, key: str) -> bytes:
        """The object's content, unchecked. Raises `StorageError` if it is missing."""

    @abstractmethod
    def digest(self, key: str) -> tuple[str, int]:
        """SHA-256 (hex) and length in bytes of an object's content, never held in memory whole. Raises as `read`."""

    @abstractmethod
    def list(self, prefix: str = "") -> tuple[str, ...]:
        """The keys that start with `prefix`, sorted, without half-written files."""

    @abstractmethod
    def peek(self) -> tuple[str, ...]:
        """The names of objects and folders at the top, sorted, by one request however large the run is."""

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Whether an object is there under this key."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object whose content is committed elsewhere (journal objects of a sealed step, old checkpoints)."""

    @abstractmethod
    def fetch(self, key: str) -> Path:
        """The path on this machine of an object, or of a folder of objects, for code that reads from a path.

        A local store gives its own file, a remote one makes a copy in the scratch, which the caller has to check. A
        folder's name ends in a slash. Raises `StorageError` if an object is missing.
        """

    @abstractmethod
    def clean(self) -> None:
        """Remove half-written files of dead writers. The lease's owner calls it once."""

    def quarantine(self, key: str, reason: str) -> DamagedObject:
        """Move a damaged object under `damaged/`, log it, and remember it in `self.damaged`."""
        names = (f"{DAMAGED}{key}" + (f".{n}" if n else "") for n in itertools.count())
        target = next(name for name in names if not self.exists(name))
        self._move(key, target)
        found = DamagedObject(key, target, reason)
        self.damaged.append(found)
        logger.warning("%s is damaged (%s): moved to %s, going on without it", key, reason, target)
        return found

    @abstractmethod
    def _move(self, key: str, target: str) -> None:
        """Give an object another key, which is not in use."""


def check_key(key: str) -> str:
    """The key itself. Raises `ValueError` if it could leave the run or hide in it."""
    if not all(part and part[0] != "." for part in key.split("/")):
        raise ValueError(f"{key!r} is no key: give a relative path whose parts don't start with a dot.")
    return key
