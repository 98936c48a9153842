"""The lease: one driver at a time on a run directory, with an epoch that tells later writes from earlier ones.

    lease = Lease.acquire(store, "raypoly train")
    lease.check()       # before each write: raises where another driver has taken over, or may have
    lease.release()

On a local disk the kernel holds it (`local_lease`); on remote storage conditional writes and a heartbeat do
(`remote_lease`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from raypoly.store.local_store import LocalStore
from raypoly.store.remote_store import RemoteStore
from raypoly.store.store import Store


class Lease(ABC):
    """Held from `acquire` to `release` or to the process's death."""

    epoch: int
    """One more than any holder's before."""

    @staticmethod
    def acquire(store: Store, description: str = "") -> Lease:
        """Take the lease, one epoch later than any holder before.

        `description` names this process to others (default: its command line). Raises `LeaseHeld`, naming the
        holder; `StorageError`.
        """
        from raypoly.store.local_lease import LocalLease
        from raypoly.store.remote_lease import RemoteLease

        if isinstance(store, LocalStore):
            return LocalLease.take(store, description)
        if isinstance(store, RemoteStore):
            return RemoteLease.take(store, description)
        raise TypeError(f"no lease is known for {type(store).__name__}")

    @abstractmethod
    def check(self) -> None:
        """Return where this lease still holds; every commit asks first. Raises `StaleEpoch` else."""

    @abstractmethod
    def release(self) -> None:
        """Give the lease back; the next holder starts at once."""
