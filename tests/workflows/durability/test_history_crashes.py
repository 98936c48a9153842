"""A driver stopped at any file-system call while it indexes and bundles loses no step; the next one ends the work.

It dies at every call; power is lost and the disk is full at every call with `RAYPOLY_CALLS=all`, else at every third.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from raypoly.core.errors import StorageError
from raypoly.run.store import acquire_lease
from raypoly.run.store.local_store import Disk, LocalStore
from tests.support.run_with_history import completed_step, results_of, row_of, same_step, table_of
from tests.support.stopping_disk import PoweredDisk, QuickDisk, Stopped, StoppingDisk
from tests.workflows.durability.test_journal_crashes import STRIDE, forget_own_pid
from workflows.durability.history import History

STEPS, BLOCK = 100, 5
"""The hundredth step turns ten segments of the index into one, and five files into a bundle."""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred steps, settled but for the last five."""
    root = tmp_path_factory.mktemp("grown") / "run"
    store = LocalStore(root, QuickDisk())
    lease = acquire_lease(store, "test")
    history = History(store, BLOCK)
    for step in range(STEPS):
        history.add(completed_step(step))
        if (step + 1) % BLOCK == 0 and step + 1 < STEPS:
            history.index_before(step + 1)
    history.add_evaluation(50, "validation", results_of(50), table_of(50))
    lease.release()
    return root


def settle(root: Path, disk: Disk) -> None:
    store = LocalStore(root, disk)
    lease = acquire_lease(LocalStore(root, QuickDisk()), "test")
    try:
        History(store, BLOCK).index_before(STEPS)
    finally:
        lease.release()  # a dead process's lock is freed by the kernel


def check(root: Path) -> None:
    """Every step and every row is there, nothing is damaged."""
    store = LocalStore(root, QuickDisk())
    lease = acquire_lease(store, "test")
    history = History(store, BLOCK)
    assert history.steps == tuple(range(STEPS))
    for step in range(STEPS):
        head = history.head(step)
        assert head is not None
        assert head.applied.metrics == row_of(step)
        if step >= STEPS - 2 * BLOCK:  # the others are in bundles that nobody touches
            assert same_step(history.load(step), completed_step(step))
    assert dict(history.evaluations) == {(50, "validation"): results_of(50)}
    assert not store.damaged
    lease.release()


def content(root: Path) -> Mapping[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in ("index", "rollouts")
        for path in (root / folder).iterdir()
    }


def calls_of_a_settling(grown: Path, root: Path) -> int:
    shutil.copytree(grown, root)
    disk = StoppingDisk()
    settle(root, disk)
    check(root)
    assert sorted(path.name for path in (root / "index").iterdir()) == ["steps-000000-000099.parquet"]
    assert len(list((root / "rollouts").iterdir())) == STEPS // BLOCK + 1
    return disk.calls


@pytest.mark.parametrize("how", ["dies", "loses power", "has a full disk"])
def test_driver_that_stops_at_any_call_of_a_settling_loses_nothing(grown: Path, tmp_path: Path, how: str) -> None:
    calls = calls_of_a_settling(grown, tmp_path / "undisturbed")
    assert calls > 30
    for call in range(1, calls + 1, 1 if how == "dies" else STRIDE):
        root = tmp_path / "stopped"
        shutil.copytree(grown, root)
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if how == "has a full disk" else None
        disk = PoweredDisk(at=call) if how == "loses power" else StoppingDisk(at=call, error=full)
        with pytest.raises(StorageError if full else Stopped):
            settle(root, disk)
        if isinstance(disk, PoweredDisk):
            disk.lose_power()
        forget_own_pid(root)
        check(root)
        settle(root, QuickDisk())
        assert content(root) == content(tmp_path / "undisturbed"), f"stopped at call {call}"
        check(root)
        shutil.rmtree(root)
