"""Opens the store at a path or URI, and takes its lease, by the kind of place it is."""

from __future__ import annotations

from pathlib import Path

from raypoly.store.backend import Backend
from raypoly.store.lease import Lease
from raypoly.store.local_lease import LocalLease
from raypoly.store.local_store import LocalStore
from raypoly.store.location import OBJECT_SCHEMES, Location, StorageOptions
from raypoly.store.remote_lease import RemoteLease
from raypoly.store.remote_store import RemoteStore
from raypoly.store.store import Store


def open_store(place: str | Path | Location, options: StorageOptions | None = None, make: bool = True) -> Store:
    """The store at a local path (its folder is made, unless `make` is false), or at a URI of remote storage.

    Sends no request yet. Raises `UsageError` if no run can be there.
    """
    location = place if isinstance(place, Location) else Location.parse(place)
    if location.folder is not None:
        return LocalStore(location.folder, make=make)
    options = options or StorageOptions()
    return RemoteStore(location, open_backend(location, options), options)


def acquire_lease(store: Store, description: str = "") -> Lease:
    """Take the lease, one epoch later than any owner before.

    `description` names this process to others (default: its command line). Raises `LeaseHeld`, which names the
    owner, or `StorageError`.
    """
    if isinstance(store, LocalStore):
        return LocalLease.acquire(store, description)
    if isinstance(store, RemoteStore):
        return RemoteLease.acquire(store, description)
    raise TypeError(f"no lease is known for {type(store).__name__}")


def open_backend(location: Location, options: StorageOptions) -> Backend:
    """The backend of a remote location. Each kind imports its own heavy packages, so they are imported late."""
    if location.scheme in OBJECT_SCHEMES:
        from raypoly.store.object_backend import ObjectBackend

        return ObjectBackend(location, options.timeout)
    from raypoly.store.filesystem_backend import FilesystemBackend

    return FilesystemBackend.at(location)
