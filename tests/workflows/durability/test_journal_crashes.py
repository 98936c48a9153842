"""A driver stopped at any file-system call, by death, power loss or a full disk, loses nothing it was promised.

Each test counts the calls of an undisturbed run, then repeats the run once for each call, stopping there; the run is
opened again, compared with what had been promised, and driven to its end. It stops at every call with
`RAYPOLY_CALLS=all`; else a death comes at every second one, a power loss and a full disk at every third.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from raypoly.core.errors import StorageError, UsageError
from raypoly.run.store import Lease, Store
from raypoly.run.store.local_store import Disk, LocalStore
from tests.support.stopping_disk import PoweredDisk, QuickDisk, Stopped, StoppingDisk
from tests.workflows.durability import storage_traffic

DEATHS, STRIDE = (1, 1) if os.environ.get("RAYPOLY_CALLS") == "all" else (2, 3)
FULL = r"No space left on device\); free some space and run the same command"


@contextlib.contextmanager
def taken_up(root: Path, disk: Disk) -> Iterator[tuple[Store, Lease]]:
    """The run as a driver opens it, on a disk of ours."""

    def opened(*_: object, make: bool = True) -> LocalStore:
        return LocalStore(root, disk, make)

    with patch("raypoly.run.run_identity.open_store", opened), patch("raypoly.run.run_folder.open_store", opened):
        store, lease = storage_traffic.take_up(root)
    try:
        yield store, lease
    finally:
        lease.release()  # a dead process's lock is freed by the kernel


def start(root: Path, disk: Disk, promises: list[str]) -> None:
    with taken_up(root, disk) as (store, lease):
        asyncio.run(storage_traffic.drive(store, lease, promises.append))


def check_promises(root: Path, promises: list[str]) -> None:
    with taken_up(root, QuickDisk()) as (store, lease):
        storage_traffic.check_promises(store, lease, promises)


def check_end(root: Path) -> None:
    with taken_up(root, QuickDisk()) as (store, lease):
        storage_traffic.check_end(store, lease)
    assert not list(root.rglob(".*"))


def calls_of_a_run(root: Path) -> int:
    disk = StoppingDisk()
    start(root, disk, [])
    check_end(root)
    return disk.calls


def test_driver_that_dies_at_any_call_resumes(tmp_path: Path) -> None:
    calls = calls_of_a_run(tmp_path / "undisturbed")
    assert calls > 50
    for call in range(1, calls + 1, DEATHS):
        root, promises = tmp_path / str(call), list[str]()
        with pytest.raises(Stopped):
            start(root, StoppingDisk(at=call), promises)
        forget_own_pid(root)
        check_promises(root, promises)
        start(root, QuickDisk(), promises)
        check_end(root)


def test_driver_that_loses_power_at_any_call_resumes(tmp_path: Path) -> None:
    calls = calls_of_a_run(tmp_path / "undisturbed")
    for call in range(min(2, STRIDE), calls + 1, STRIDE):
        root, promises, disk = tmp_path / str(call), list[str](), PoweredDisk(at=call)
        with pytest.raises(Stopped):
            start(root, disk, promises)
        disk.lose_power()
        forget_own_pid(root)
        check_promises(root, promises)
        start(root, QuickDisk(), promises)
        check_end(root)


def test_disk_that_is_full_at_any_call_is_told_and_the_run_resumes_when_there_is_room(tmp_path: Path) -> None:
    calls = calls_of_a_run(tmp_path / "undisturbed")
    for call in range(1, calls + 1, STRIDE):
        root, promises = tmp_path / str(call), list[str]()
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with pytest.raises((StorageError, UsageError), match=FULL):
            start(root, StoppingDisk(at=call, error=full), promises)
        forget_own_pid(root)
        check_promises(root, promises)
        start(root, QuickDisk(), promises)
        check_end(root)


def forget_own_pid(root: Path) -> None:
    """Half-written files carry this test's pid, which lives on: give them a dead one's."""
    for path in root.rglob(".*.part"):
        path.rename(path.with_name(path.name.replace(f"-{os.getpid()}-", "-4194305-")))
