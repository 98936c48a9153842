"""The lease on a local disk.

The lock is `flock` on `lease.lock`: the kernel frees it when its owner dies, however it dies. `lease.json` names the
owner and its epoch. A network file system may drop the lock of an owner and give it to another machine. The old owner
then finds a newer epoch on disk and may write nothing more.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict

from raypoly.core.errors import StorageError
from raypoly.run.store.lease import Lease, LeaseOwner, lease_held, lease_overtaken, lease_released
from raypoly.run.store.local_store import LocalStore

LOCK_KEY = "lease.lock"
OWNER_KEY = "lease.json"
_LOCK_SECONDS = 5.0
_RETRY = 0.05


class LocalLease(Lease):
    """A locked file: the kernel frees it when its owner dies."""

    def __init__(self, store: LocalStore, descriptor: int, epoch: int) -> None:
        self.epoch = epoch
        self._store = store
        self._descriptor: int | None = descriptor
        # A forked child would keep the lock alive after its parent died.
        os.register_at_fork(after_in_child=self.release)

    @classmethod
    def acquire(cls, store: LocalStore, description: str) -> LocalLease:
        """As `acquire_lease`."""
        descriptor = _lock(store)
        try:
            epoch = _next_epoch(store)
            owner = {"epoch": epoch, **asdict(LeaseOwner.this_process(description))}
            store.put_mutable(OWNER_KEY, json.dumps(owner, indent=2).encode())
            store.clean()
        except BaseException:
            os.close(descriptor)
            raise
        return cls(store, descriptor, epoch)

    def check(self) -> None:
        if self._descriptor is None:
            raise lease_released(self._store)
        found = read_owner(self._store)
        if found is None:
            raise StorageError(f"{self._store.uri}/{OWNER_KEY} is gone or damaged; was the run folder moved?")
        epoch, owner = found
        if epoch > self.epoch:
            raise lease_overtaken(self._store, owner.description, epoch, self.epoch)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(store: LocalStore) -> int:
    """The descriptor of the locked file.

    The lock may be taken while the named owner is dead: the new owner is about to write its name, or the kernel is
    still closing the old one's files. This waits some seconds for that to end.
    """
    path = store.local_path(LOCK_KEY)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"{path} could not be opened ({error.strerror}); make it writable.") from error
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            found = read_owner(store)
            if (found and found[1].seems_alive) or time.monotonic() > deadline:
                os.close(descriptor)
                raise lease_held(store, found[1].description if found else "another process") from None
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
    if store.exists(OWNER_KEY):
        store.quarantine(OWNER_KEY, "it is no lease")
    return int(time.time())  # the last epoch was lost: the time is beyond it


def read_owner(store: LocalStore) -> tuple[int, LeaseOwner] | None:
    """Epoch and owner on disk; None if the file is missing or damaged."""
    if not store.exists(OWNER_KEY):
        return None
    try:
        fields = json.loads(store.read(OWNER_KEY))
        return int(fields.pop("epoch")), LeaseOwner(**fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
