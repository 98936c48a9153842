"""A run's files: the store, and the lease of who may write them. What is kept there lies in `step_records`,
`rollout_files` and others, which bring pyarrow.

store = open_store("/runs/tiny-poly_epo-s0-1a2b3c4d")
lease = acquire_lease(store, "raypoly train")
store.commit("journal/step-000001/00000.arrow", data)  # durable when it returns, immutable from then on
"""

from __future__ import annotations

from pathlib import Path

from raypoly.run.store.lease import Lease, LeaseState
from raypoly.run.store.local_store import LocalLease, LocalStore, probe_local_lease, read_owner
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.remote_lease import RemoteLease, newest_remote_epoch, probe_remote_lease
from raypoly.run.store.store import Store

__all__ = ["Lease", "Store", "acquire_lease", "newest_epoch", "open_store", "probe_lease"]


def open_store(place: str | Path | Location, options: StorageOptions | None = None, make: bool = True) -> Store:
    """The store at a local path (its folder is made, unless `make` is false), or at a URI of remote storage.

    Sends no request yet. Raises `UsageError` if no run can be there.
    """
    location = place if isinstance(place, Location) else Location.parse(place)
    if location.folder is not None:
        return LocalStore(location.folder, make=make)
    from raypoly.run.store.object_store import ObjectStore  # imports heavy packages

    return ObjectStore(location, options or StorageOptions())


def acquire_lease(store: Store, description: str = "") -> Lease:
    """Take the lease, one epoch later than any owner before. From then on the store refuses what it does not cover.

    `description` names this process (default: its command line). Raises `LeaseHeld` with the owner, `StorageError`.
    """
    if isinstance(store, LocalStore):
        return LocalLease.acquire(store, description)
    return RemoteLease.acquire(store, description)


def newest_epoch(store: Store) -> int | None:
    """The newest known epoch; None if this machine sees no lease."""
    if isinstance(store, LocalStore):
        found = read_owner(store)
        return found[0] if found else None
    return newest_remote_epoch(store) or None


def probe_lease(store: Store) -> LeaseState | None:
    """The newest lease; None if there is none. Waits some seconds for a remote heartbeat."""
    return probe_local_lease(store) if isinstance(store, LocalStore) else probe_remote_lease(store)
