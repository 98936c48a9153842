"""Opens the store at a path or URI, takes its lease, and finds out who owns the lease.

store = open_store("/runs/tiny-poly_epo-s0-1a2b3c4d")
lease = acquire_lease(store, "raypoly train")
probe_lease(store).summary                  # "held by pid 4711 on host a since ... (raypoly train)"
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from raypoly.run.store import remote_lease
from raypoly.run.store.lease import Lease, LeaseOwner
from raypoly.run.store.local_lease import LOCK_KEY, LocalLease, read_owner
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.location import OBJECT_SCHEMES, Location, StorageOptions
from raypoly.run.store.remote_lease import RemoteLease, is_released, read_beat, read_claim
from raypoly.run.store.remote_store import RemoteStore
from raypoly.run.store.store import Store


def open_store(place: str | Path | Location, options: StorageOptions | None = None, make: bool = True) -> Store:
    """The store at a local path (its folder is made, unless `make` is false), or at a URI of remote storage.

    Sends no request yet. Raises `UsageError` if no run can be there.
    """
    location = place if isinstance(place, Location) else Location.parse(place)
    if location.folder is not None:
        return LocalStore(location.folder, make=make)
    options = options or StorageOptions()
    if location.scheme in OBJECT_SCHEMES:  # each backend imports heavy packages of its own
        from raypoly.run.store.object_backend import ObjectBackend

        return RemoteStore(location, ObjectBackend(location, options.timeout), options)
    from raypoly.run.store.filesystem_backend import FilesystemBackend

    return RemoteStore(location, FilesystemBackend.at(location), options)


def acquire_lease(store: Store, description: str = "") -> Lease:
    """Take the lease, one epoch later than any owner before.

    `description` names this process to others (default: its command line). Raises `LeaseHeld`, which names the
    owner, or `StorageError`.
    """
    if isinstance(store, LocalStore):
        return LocalLease.acquire(store, description)
    assert isinstance(store, RemoteStore)
    return RemoteLease.acquire(store, description)


@dataclass(frozen=True)
class LeaseState:
    """What is known about a run's newest lease."""

    epoch: int
    lives: bool | None
    """Whether its owner may still write; None if that can't be known from here."""
    summary: str
    """One clause for a person."""
    pid: int | None = None
    """Of an owner that lives on this machine."""


def newest_epoch(store: Store) -> int | None:
    """The newest epoch that anybody owned, as far as is known; None if this machine sees no lease."""
    if isinstance(store, RemoteStore):
        return remote_lease.newest_epoch(store) or None
    assert isinstance(store, LocalStore)
    found = read_owner(store)
    return found[0] if found else None


def probe_lease(store: Store) -> LeaseState | None:
    """The newest lease; None if none can be read. Waits some seconds for a remote heartbeat."""
    if isinstance(store, RemoteStore):
        epoch = remote_lease.newest_epoch(store)
        return _probe_remote(store, epoch) if epoch else None
    assert isinstance(store, LocalStore)
    found = read_owner(store)
    return None if found is None else _probe_local(store, *found)


def _probe_local(store: LocalStore, epoch: int, owner: LeaseOwner) -> LeaseState:
    if owner.is_gone:
        return LeaseState(epoch, False, f"free; last held by {owner.description}, which has ended")
    if not owner.is_here:
        return LeaseState(epoch, None, f"perhaps held by {owner.description}, which can't be asked from this machine")
    if _is_locked(store.local_path(LOCK_KEY)):
        return LeaseState(epoch, True, f"held by {owner.description}", owner.pid)
    return LeaseState(epoch, False, f"free; given back by {owner.description}")


def _probe_remote(store: RemoteStore, epoch: int) -> LeaseState:
    claim = read_claim(store, epoch, 2 * store.options.timeout)
    seen, until = read_beat(store, epoch), time.monotonic() + claim.ttl / 4
    if claim.owner is None and not seen:
        return LeaseState(epoch, None, f"last held in epoch {epoch}, of which the lease's objects are gone or damaged")
    if claim.owner is not None and claim.owner.is_gone:
        return LeaseState(epoch, False, f"free; last held by {claim.description}, which has ended")
    while not is_released(seen):
        if time.monotonic() > until:
            still = f"whose heartbeat stood still for {claim.ttl / 4:.0f} s"
            return LeaseState(epoch, None, f"perhaps held by {claim.description}, {still}")
        time.sleep(claim.ttl / 60)
        now = read_beat(store, epoch)
        if now != seen and not is_released(now):
            pid = claim.owner.pid if claim.owner is not None and claim.owner.is_here else None
            return LeaseState(epoch, True, f"held by {claim.description}", pid)
        seen = now
    return LeaseState(epoch, False, f"free; given back by {claim.description}")


def _is_locked(path: Path) -> bool:
    """Whether a process of this machine has locked the file, by the kernel's list. Trying the lock would take it."""
    try:
        inode = str(os.stat(path).st_ino)
        return any(line.split()[5].rpartition(":")[2] == inode for line in Path("/proc/locks").read_text().splitlines())
    except (OSError, IndexError):
        return True  # not known: better to say held
