"""The lease: one driver at a time on a run directory, with an epoch that tells later writes from earlier ones.

    lease = acquire_lease(store, "raypoly train")     # raypoly.store.open_store
    lease.check()       # before each write: raises where another driver has taken over, or may have
    lease.release()

On a local disk the kernel holds the lease (`local_lease`). On remote storage conditional writes and a heartbeat hold it
(`remote_lease`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from raypoly.errors import LeaseHeld, StaleEpoch
from raypoly.store.store import Store


class Lease(ABC):
    """The right to write to a run, from `acquire_lease` to `release` or to the process's death."""

    epoch: int
    """One more than that of any owner before."""

    @abstractmethod
    def check(self) -> None:
        """Return if this process still owns the lease, else raise `StaleEpoch`. Every commit calls it first."""

    @abstractmethod
    def release(self) -> None:
        """Give the lease back. The next owner can start at once."""


def lease_held(store: Store, owner: str) -> LeaseHeld:
    """The error of a second start."""
    return LeaseHeld(f"{store.uri} is held by {owner}: wait for it or stop it.")


def lease_released(store: Store) -> StaleEpoch:
    """The error of a write after `release`."""
    return StaleEpoch(f"The lease on {store.uri} was given back: nothing more may be written.")


def lease_overtaken(store: Store, owner: str, epoch: int, own_epoch: int) -> StaleEpoch:
    """The error of a write after another driver took over."""
    return StaleEpoch(
        f"{store.uri} was taken over by {owner} (epoch {epoch}, this one is {own_epoch}): "
        "this driver stops and writes nothing more."
    )
