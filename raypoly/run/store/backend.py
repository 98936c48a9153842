"""The requests to remote storage, one request (or one upload) a method, without retries or further promises.

`RemoteStore` builds its promises on them. `ObjectBackend` speaks to object stores, `FilesystemBackend` to the other
file systems of pyarrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

PART = 8 << 20
"""The most bytes that one request moves, so that its time is bounded however large the object is."""


class BackendFailure(Exception):
    """A request failed. It may or may not have taken effect."""

    def __init__(self, reason: str, hint: str = "", transient: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        """What the user can do; empty if waiting may help."""
        self.transient = transient
        """Whether the same request may succeed later."""


class Missing(Exception):
    """There is no such object."""


class NoCondition(Exception):
    """The storage has no writes that only create an object."""


class Backend(ABC):
    """One bucket and prefix. Every method may raise `BackendFailure`."""

    conditional = True
    """Whether the storage itself decides `create`."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none; False if there is one. Raises `NoCondition`."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write an object whole, replacing any other."""

    @abstractmethod
    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        """`put` in several requests; all parts but the last are `PART` bytes long."""

    @abstractmethod
    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """An object's content, or bytes `start` to `end` of it. Raises `Missing`."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """An object's length in bytes; None if there is none."""

    @abstractmethod
    def list_below(self, folder: str) -> Iterator[tuple[str, int]]:
        """Key and length of every object below a folder (ends in a slash, or is empty), in any order."""

    @abstractmethod
    def list_top(self) -> Iterator[str]:
        """Names of the objects and folders at the top."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; it may be gone already."""

    @abstractmethod
    def copy(self, key: str, target: str) -> None:
        """Give an object's content a second key. Raises `Missing`."""

    def with_timeout(self, timeout: float) -> Backend:
        """The same place with another timeout for requests."""
        return self
