"""What a remote storage is asked to do, one request (or one upload) a method, with no retry and no promise beyond it.

`RemoteStore` builds its promises from these; `ObjectBackend` speaks to object stores, `FilesystemBackend` to whatever
else pyarrow reaches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

PART = 8 << 20
"""Bytes that one request moves at most: each is bounded in time, however large the object."""


class BackendFailure(Exception):
    """One request did not succeed; whether it took effect is not known."""

    def __init__(self, reason: str, hint: str = "", transient: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        """What to do about it; empty where time may heal it."""
        self.transient = transient
        """Whether the same request may succeed later."""


class Missing(Exception):
    """There is no such object."""


class NoCondition(Exception):
    """The storage has no writes that only create."""


class Backend(ABC):
    """One bucket and prefix. Every method may raise `BackendFailure`."""

    conditional = True
    """Whether `create` is decided by the storage itself."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Write an object where none is; False where one is. Raises `NoCondition`."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write an object whole, over what is there."""

    @abstractmethod
    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        """`put` of what does not fit one request; parts are `PART` long, but the last."""

    @abstractmethod
    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """An object's content, or bytes `start` to `end` of it. Raises `Missing`."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Its length in bytes; None where there is no such object."""

    @abstractmethod
    def list_below(self, folder: str) -> Iterator[tuple[str, int]]:
        """Key and length of every object below a folder (ends in a slash, or is empty), in any order."""

    @abstractmethod
    def list_top(self) -> Iterator[str]:
        """Names of the objects and folders at the top."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; one that is gone already is fine."""

    @abstractmethod
    def copy(self, key: str, target: str) -> None:
        """Give an object's content a second key. Raises `Missing`."""

    def with_timeout(self, timeout: float) -> Backend:
        """The same place with another time for a request."""
        return self
