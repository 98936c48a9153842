"""The store on remote storage: each commit is one whole write that only creates, repeated until its result is known.

A request that fails (the server is slow, hangs or restarts) is repeated with growing waits for
`StorageOptions.patience` seconds. A write may be repeated because its answer was lost. It then finds its own bytes,
which is a success. Before each request that changes something the store calls its `fence`. That is the lease's check,
which raises in a driver that was, or could have been, overtaken.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from raypoly.core.errors import StorageError
from raypoly.run.store.backend import PART, Backend, BackendFailure, Missing, NoCondition
from raypoly.run.store.lease import is_alive
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.store import Store, check_key

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_ONE_REQUEST = 2 * PART
"""The most bytes of an object that one request writes, so that it can be a request that only creates."""
_FIRST_PATIENCE = 15.0
"""Seconds for the very first request, so that a wrong address is found soon."""
_AGAIN = "; run the same command again when it is back"


class RemoteStore(Store):
    """Objects of a `Backend`."""

    def __init__(self, location: Location, backend: Backend, options: StorageOptions) -> None:
        super().__init__(location, options.workspace(location))
        self.options = options
        self.fence: Callable[[], None] = lambda: None
        """Called before each request that changes something; raises if this process may not write."""
        self._backend = backend
        self._reached = False
        self._fetched = self.workspace / f"fetched-{os.getpid()}"

    @property
    def conditional(self) -> bool:
        """Whether the storage itself decides which process creates an object."""
        return self._backend.conditional

    def forget_conditions(self) -> None:
        """Treat the storage as one without conditional writes, since it ignores them."""
        self._backend.conditional = False

    def for_lease(self) -> RemoteStore:
        """The same place without a fence and with a third of the time for a request, for the lease's own objects."""
        timeout = self.options.timeout / 3
        options = replace(self.options, timeout=timeout, patience=self.options.timeout)
        return RemoteStore(self.location, self._backend.with_timeout(timeout), options)

    def create(self, key: str, data: bytes) -> bool:
        """Create an object. Whether `key` holds `data` now; False if it held something else."""
        check_key(key)
        return self._do("written", key, lambda: self._create(key, data), changes=True)

    def commit(self, key: str, data: bytes) -> None:
        if len(data) <= _ONE_REQUEST:
            taken = not self.create(key, data)
        elif taken := self.exists(key):
            taken = self.digest(key)[0] != hashlib.sha256(data).hexdigest()
        else:  # in parts: only the lease and a manifest's checksum protect it from other writers
            self.put_mutable(key, data)
        if taken:
            raise StorageError(
                f"{self.place(key)} is committed with other content and can't be replaced: this is a bug."
            )

    def put_mutable(self, key: str, data: bytes) -> None:
        check_key(key)
        if len(data) > _ONE_REQUEST:
            self._do("written", key, lambda: self._backend.upload(key, _parts(data)), changes=True)
        else:
            self._do("written", key, lambda: self._backend.put(key, data), changes=True)

    def put_mutable_file(self, key: str, source: Path) -> None:
        check_key(key)
        try:
            if source.stat().st_size <= _ONE_REQUEST:
                self.put_mutable(key, source.read_bytes())
            else:
                self._do("written", key, lambda: self._backend.upload(key, _chunks(source)), changes=True)
        except OSError as error:
            raise StorageError(f"{source} could not be read ({error.strerror or error}); check the disk.") from error

    def read(self, key: str) -> bytes:
        return self._do("read", check_key(key), lambda: self._backend.get(key))

    def digest(self, key: str) -> tuple[str, int]:
        sha, size = hashlib.sha256(), 0
        for part in self._read_parts(check_key(key)):
            sha.update(part)
            size += len(part)
        return sha.hexdigest(), size

    def list(self, prefix: str = "") -> tuple[str, ...]:
        folder = prefix.rpartition("/")[0]
        found = self._listed(f"{folder}/" if folder else "")
        return tuple(sorted(key for key, _ in found if key.startswith(prefix)))

    def peek(self) -> tuple[str, ...]:
        return self._do("listed", "", lambda: tuple(sorted(self._backend.list_top())))

    def exists(self, key: str) -> bool:
        return self._do("read", check_key(key), lambda: self._backend.size(key)) is not None

    def delete(self, key: str) -> None:
        self._do("deleted", check_key(key), lambda: self._backend.delete(key), changes=True)

    def fetch(self, key: str) -> Path:
        names = [name for name, _ in self._listed(key)] if key.endswith("/") else [check_key(key)]
        if not names:
            raise StorageError(f"{self.place(key)} could not be read: it is missing.")
        for name in names:
            self._download(name, self._fetched / name)
        return self._fetched / key

    def clean(self) -> None:
        """Remove copies that dead processes fetched. The storage itself never shows half an object."""
        for folder in self.workspace.glob("fetched-*"):
            pid = folder.name.removeprefix("fetched-")
            if pid.isdecimal() and not is_alive(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)

    def _move(self, key: str, target: str) -> None:
        self._do("moved", key, lambda: self._backend.copy(key, target), changes=True)
        self._do("moved", key, lambda: self._backend.delete(key), changes=True)

    def _create(self, key: str, data: bytes) -> bool:
        """Without conditional writes: look, then write. The lease ensures that nobody else writes."""
        if self._backend.conditional:
            try:
                if self._backend.create(key, data):
                    return True
            except NoCondition as error:
                logger.warning("%s has no conditional writes (%s): looking before writing", self.uri, error)
                self._backend.conditional = False
        try:
            return self._backend.get(key) == data
        except Missing as error:
            if self._backend.conditional:  # it was deleted, or is being written, between the two requests
                raise BackendFailure("it was there and then was not") from error
        self.fence()  # again, since the look took some time
        self._backend.put(key, data)
        return True

    def _read_parts(self, key: str) -> Iterator[bytes]:
        size = self._do("read", key, lambda: self._backend.size(key))
        if size is None:
            raise StorageError(f"{self.place(key)} could not be read: it is missing.")
        for start in range(0, size, PART):
            end = min(start + PART, size)
            yield self._do("read", key, lambda start=start, end=end: self._backend.get(key, start, end))  # type: ignore[misc]

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

    def _listed(self, folder: str) -> tuple[tuple[str, int], ...]:
        return self._do("listed", folder, lambda: tuple(self._backend.list_below(folder)))

    def _do(self, verb: str, key: str, request: Callable[[], _T], changes: bool = False) -> _T:
        """The request's result. A transient failure is repeated for `patience` seconds."""
        patience = self.options.patience if self._reached else min(self.options.patience, _FIRST_PATIENCE)
        started, wait, warned = time.monotonic(), 0.1, False
        while True:
            if changes:
                self.fence()
            try:
                result = request()
            except Missing as error:
                raise StorageError(f"{self.place(key)} could not be {verb}: it is missing.") from error
            except BackendFailure as failure:
                waited = time.monotonic() - started
                if not failure.transient or waited + wait > patience:
                    hint = failure.hint or f"tried for {waited:.0f} s{_AGAIN}"
                    raise StorageError(f"{self.place(key)} could not be {verb}: {failure.reason}; {hint}.") from failure
                if not warned:
                    logger.warning("%s could not be %s (%s): trying again", self.place(key), verb, failure.reason)
                warned = True
                time.sleep(wait)
                wait = min(2 * wait, 10.0)
            else:
                self._reached = True
                return result


def _chunks(source: Path) -> Iterator[bytes]:
    with source.open("rb") as file:
        while chunk := file.read(PART):
            yield chunk


def _parts(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    return (bytes(view[start : start + PART]) for start in range(0, len(view), PART))
