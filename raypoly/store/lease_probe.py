"""Finds out who owns a run's lease without taking it: for the doctor, and for ranks that write beside their driver.

state = probe_lease(store)
state.epoch, state.lives, state.summary     # 7, True, "held by pid 4711 on host a since ... (raypoly train)"
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from raypoly.store import remote_lease
from raypoly.store.lease_owner import LeaseOwner
from raypoly.store.local_lease import LOCK_KEY, read_owner
from raypoly.store.local_store import LocalStore
from raypoly.store.remote_lease import is_released, read_beat, read_claim
from raypoly.store.remote_store import RemoteStore
from raypoly.store.store import Store


@dataclass(frozen=True)
class LeaseState:
    """What is known about a run's newest lease."""

    epoch: int
    lives: bool | None
    """Whether its owner may still write; None if that can't be known from here."""
    summary: str
    """One clause for a person."""


def newest_epoch(store: Store) -> int | None:
    """The newest epoch that anybody owned, as far as is known; None if this machine sees no lease."""
    if isinstance(store, RemoteStore):
        return remote_lease.newest_epoch(store) or None
    assert isinstance(store, LocalStore)
    found = read_owner(store)
    return found[0] if found else None


def probe_lease(store: Store) -> LeaseState | None:
    """The newest lease; None if none can be read. Waits some seconds for a remote heartbeat."""
    epoch = newest_epoch(store)
    if epoch is None:
        return None
    if isinstance(store, RemoteStore):
        return _probe_remote(store, epoch)
    assert isinstance(store, LocalStore)
    found = read_owner(store)
    return None if found is None else _probe_local(store, *found)


def _probe_local(store: LocalStore, epoch: int, owner: LeaseOwner) -> LeaseState:
    if owner.is_gone:
        return LeaseState(epoch, False, f"free; last held by {owner.description}, which has ended")
    if not owner.is_here:
        return LeaseState(epoch, None, f"perhaps held by {owner.description}, which can't be asked from this machine")
    if _is_locked(store.local_path(LOCK_KEY)):
        return LeaseState(epoch, True, f"held by {owner.description}")
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
            return LeaseState(
                epoch,
                None,
                f"perhaps held by {claim.description}, whose heartbeat stood still for {claim.ttl / 4:.0f} s",
            )
        time.sleep(claim.ttl / 60)
        now = read_beat(store, epoch)
        if now != seen and not is_released(now):
            return LeaseState(epoch, True, f"held by {claim.description}")
        seen = now
    return LeaseState(epoch, False, f"free; given back by {claim.description}")


def _is_locked(path: Path) -> bool:
    """Whether a process of this machine has locked the file, by the kernel's list. Trying the lock would take it."""
    try:
        inode = str(os.stat(path).st_ino)
        return any(line.split()[5].rpartition(":")[2] == inode for line in Path("/proc/locks").read_text().splitlines())
    except (OSError, IndexError):
        return True  # not known: better to say held
