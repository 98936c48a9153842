"""The lease on a local disk.

The lock is `flock` on `lease.lock`: the kernel frees it when its holder dies, however it dies. `lease.json` names the
holder and its epoch. A holder that lost the folder to another machine (a network file system that dropped its lock)
finds a newer epoch on disk and may write nothing more.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict

from raypoly.errors import LeaseHeld, StaleEpoch, StorageError
from raypoly.store.lease import Lease
from raypoly.store.lease_owner import LeaseOwner
from raypoly.store.local_store import LocalStore

LOCK_KEY = "lease.lock"
HOLDER_KEY = "lease.json"
_PATIENCE = 5.0
_RETRY = 0.05


class LocalLease(Lease):
    """A locked file: the kernel frees it when its holder dies."""

    def __init__(self, store: LocalStore, descriptor: int, epoch: int) -> None:
        self.epoch = epoch
        self._store = store
        self._descriptor: int | None = descriptor
        # A forked child would keep the lock alive after its parent died.
        os.register_at_fork(after_in_child=self._close)

    @classmethod
    def take(cls, store: LocalStore, description: str) -> LocalLease:
        """As `Lease.acquire`."""
        descriptor = _lock(store)
        try:
            epoch = _next_epoch(store)
            holder = {"epoch": epoch, **asdict(LeaseOwner.this_process(description))}
            store.put_mutable(HOLDER_KEY, json.dumps(holder, indent=2).encode())
            store.clean()
        except BaseException:
            os.close(descriptor)
            raise
        return cls(store, descriptor, epoch)

    def check(self) -> None:
        if self._descriptor is None:
            raise StaleEpoch(f"The lease on {self._store.uri} was given back: nothing more may be written.")
        found = read_owner(self._store)
        if found is None:
            raise StorageError(f"{self._store.uri}/{HOLDER_KEY} is gone or damaged; was the run folder moved?")
        if found[0] > self.epoch:
            raise StaleEpoch(
                f"{self._store.uri} was taken over by {found[1].named} (epoch {found[0]}, this one is {self.epoch}): "
                "this driver stops and writes nothing more."
            )

    def release(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(store: LocalStore) -> int:
    """The descriptor of the locked file.

    Waits a moment where the lock is taken but the named holder is a dead one: either the new holder is about to
    write its name, or the kernel is still closing the old one's files.
    """
    path = store.local_path(LOCK_KEY)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"{path} could not be opened ({error.strerror}); make it writable.") from error
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            found = read_owner(store)
            if (found and found[1].seems_alive) or time.monotonic() > deadline:
                os.close(descriptor)
                who = found[1].named if found else "another process"
                raise LeaseHeld(f"{store.uri} is held by {who}: wait for it or stop it.") from None
        except OSError as error:
            os.close(descriptor)
            raise StorageError(
                f"{path} could not be locked ({error.strerror}); use a file system that supports flock."
            ) from error
        time.sleep(_RETRY)


def _next_epoch(store: LocalStore) -> int:
    found = read_owner(store)
    if found:
        return found[0] + 1
    if set(store.list()) <= {LOCK_KEY}:
        return 1
    if store.exists(HOLDER_KEY):
        store.quarantine(HOLDER_KEY, "it is no lease")
    return int(time.time())  # the count was lost: this is beyond it


def read_owner(store: LocalStore) -> tuple[int, LeaseOwner] | None:
    """Epoch and holder on disk; None where the file is missing or damaged."""
    if not store.exists(HOLDER_KEY):
        return None
    try:
        fields = json.loads(store.read(HOLDER_KEY))
        return int(fields.pop("epoch")), LeaseOwner(**fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
