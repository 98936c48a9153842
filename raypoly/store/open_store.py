"""Opening the store at a path or URI, by the kind of place it is."""

from __future__ import annotations

from pathlib import Path

from raypoly.store.backend import Backend
from raypoly.store.local_store import LocalStore
from raypoly.store.location import OBJECT_SCHEMES, Location
from raypoly.store.remote_store import RemoteStore
from raypoly.store.storage_options import StorageOptions
from raypoly.store.store import Store


def open_store(place: str | Path | Location, options: StorageOptions | None = None, make: bool = True) -> Store:
    """The store at a local path (its folder is made, unless `make` is false), or at a URI of remote storage.

    Sends no request yet. Raises `UsageError` for what is no place for a run.
    """
    location = place if isinstance(place, Location) else Location.parse(place)
    if location.folder is not None:
        return LocalStore(location.folder, make=make)
    options = options or StorageOptions()
    return RemoteStore(location, connect(location, options), options)


def connect(location: Location, options: StorageOptions) -> Backend:
    """The way to a remote location, which each kind of storage brings its own heavy packages for."""
    if location.scheme in OBJECT_SCHEMES:
        from raypoly.store.object_backend import ObjectBackend

        return ObjectBackend(location, options.timeout)
    from raypoly.store.filesystem_backend import FilesystemBackend

    return FilesystemBackend.at(location)
