"""Object stores (S3, Google Cloud Storage, Azure Blob Storage) through obstore, one request a method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

from raypoly.store.backend import PART, Backend, BackendFailure, Missing, NoCondition
from raypoly.store.location import Location
from raypoly.store.obstore_clients import open_client
from raypoly.store.storage_errors import explain_error, lacks_conditional_writes

_UPLOADS_AT_ONCE = 4
_PART_RETRIES = 5
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")


class ObjectBackend(Backend):
    """One bucket and prefix of an object store."""

    def __init__(self, location: Location, timeout: float) -> None:
        self._location, self._family, self._timeout = location, location.family, timeout
        self._client = open_client(location, timeout)
        # A part that fails is repeated alone: by the library, or the whole upload would start again.
        self._uploader = open_client(location, timeout, _PART_RETRIES)

    def create(self, key: str, data: bytes) -> bool:
        try:
            with self._explained():
                self._client.put(key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def put(self, key: str, data: bytes) -> None:
        with self._explained():
            self._client.put(key, data, use_multipart=False)

    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        try:
            with self._explained():
                self._uploader.put(key, iter(parts), chunk_size=PART, max_concurrency=_UPLOADS_AT_ONCE)
        except Missing as error:  # a repeated request may meet an upload that is over: it is begun again
            raise BackendFailure("the server no longer knew of the upload") from error

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with self._explained():
            if end is not None:
                return bytes(self._client.get_range(key, start=start, end=end))
            return bytes(self._client.get(key).bytes())

    def size(self, key: str) -> int | None:
        try:
            with self._explained():
                return self._client.head(key)["size"]
        except Missing:
            return None

    def list_below(self, folder: str) -> Iterator[tuple[str, int]]:
        with self._explained():
            for chunk in self._client.list(folder or None, chunk_size=1000):
                yield from ((meta["path"], meta["size"]) for meta in chunk)

    def list_top(self) -> Iterator[str]:
        with self._explained():
            found = self._client.list_with_delimiter()
            yield from (meta["path"] for meta in found["objects"])
            yield from (prefix.rstrip("/") for prefix in found["common_prefixes"])

    def delete(self, key: str) -> None:
        try:
            with self._explained():
                self._client.delete(key)
        except Missing:
            return

    def copy(self, key: str, target: str) -> None:
        with self._explained():
            self._client.copy(key, target)

    def with_timeout(self, timeout: float) -> ObjectBackend:
        other = ObjectBackend(self._location, timeout)
        other.conditional = self.conditional
        return other

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except AlreadyExistsError:
            raise
        except (FileNotFoundError, NotFoundError) as error:
            if any(word in str(error) for word in _NO_BUCKET):
                raise explain_error(error, self._family, self._timeout) from error
            raise Missing from error
        except BaseError as error:
            if lacks_conditional_writes(error):
                raise NoCondition("the server answered that it is not implemented") from error
            raise explain_error(error, self._family, self._timeout) from error
        except OSError as error:
            raise BackendFailure(str(error)[:200]) from error
