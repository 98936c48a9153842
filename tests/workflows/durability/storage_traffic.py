"""All storage calls of a run, without a model. Tests stop it at every call.

    store, lease = take_up("s3://bucket/run?...")        # config, lease, record of this start
    asyncio.run(drive(store, lease, promises.append))    # from wherever the run stands to its end
    check_promises(store, lease, promises)               # of a run that was stopped
    check_end(store, lease)                              # as an undisturbed one

Two steps of two groups, a checkpoint after each (the first one is dropped for the second), index, an evaluation, a
summary, and the rollouts bundled in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pyarrow as pa

from raypoly.core.errors import CorruptData
from raypoly.core.settings import load
from raypoly.run.run_identity import resolve_run
from raypoly.run.store import Lease, Store
from raypoly.run.store.rollout_files import read_evaluation
from raypoly.run.store.step_records import Applied, Record
from tests.support.sample_groups import make_group, same_group, stages
from tests.support.saved_checkpoint import save_checkpoint
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.history import History
from workflows.durability.journal import Journal

STEPS = 2
GROUPS = [[make_group(step, slot, 2, tokens=4, unjudged=slot == 1) for slot in range(2)] for step in range(STEPS)]
NUMBERS = [np.array([1.0, np.nan]), np.array([0.5, -0.5])]
TABLE = pa.table({"correct": [1, 2]})
SUMMARY = b'{"state": "finished"}'
Promise = Callable[[str], object]
"""Hears what a commit promised when it returned: `score 0 1` (step, slot), `compacted 1`, `saved 2`, `evaluated`."""


def take_up(place: str | Path) -> tuple[Store, Lease]:
    """Open the run as a driver does. Raises `UsageError` if the place can't be used."""
    config = load(None, [f"run.dir={place}", f"train.steps={STEPS}", "run.storage_patience=20"], lambda text: None)
    return resolve_run(config).open("test")


async def drive(store: Store, lease: Lease, promise: Promise) -> None:
    """Continue the run from where it stands to its end."""
    journal, checkpoints = Journal(store, window_seconds=0), Checkpoints(store, lease, keep_last=1)
    newest = checkpoints.newest_valid()
    saved = newest.step if newest else 0
    for step in range(STEPS):
        if not _is_complete(journal, step):
            await _take_step(journal, step, promise)
        if saved <= step:
            save_checkpoint(checkpoints, step + 1, files_of(step + 1))
            promise(f"saved {step + 1}")
            await journal.index_before(step + 1)
    if (STEPS, "test") not in journal.evaluations():
        await journal.commit_evaluation(STEPS, "test", {"pass": 1.0}, TABLE)
        promise("evaluated")
    store.put_mutable("summary.json", SUMMARY)
    await journal.close()
    History(store, block=STEPS).index_before(STEPS)


def check_promises(store: Store, lease: Lease, promises: Collection[str]) -> None:
    """Check that everything promised before the stop is there, and that nothing is damaged."""
    journal = Journal(store)
    for step in range(STEPS):
        if step in journal.completed_steps():
            assert all(map(same_group, journal.load_step(step).groups, GROUPS[step]))
            assert store.list(f"journal/step-{step:06d}/") == ()
        else:
            assert f"compacted {step}" not in promises
            found = {f"{kind} {step} {slot}" for slot, kind in journal.step(step).keys}
            assert {told for told in promises if told.split()[1:2] == [str(step)] and told[:5] != "saved"} <= found
    assert "evaluated" not in promises or (STEPS, "test") in journal.evaluations()
    saved = max((int(told.split()[1]) for told in promises if told.startswith("saved")), default=0)
    newest = Checkpoints(store, lease).newest_valid()
    assert (newest.step if newest else 0) >= saved
    assert not store.damaged


def check_end(store: Store, lease: Lease) -> None:
    """Check that the run ended as an undisturbed one, and that no file is left over."""
    journal = Journal(store)
    for step in range(STEPS):
        completed = journal.load_step(step)
        assert all(map(same_group, completed.groups, GROUPS[step]))
        assert [row.tobytes() for row in completed.rewards] == [row.tobytes() for row in NUMBERS]
        assert completed.applied == Applied(step, f"{step:064x}", {"reward": 0.5}, len(GROUPS[step]))
    assert read_evaluation(store, STEPS, "test").table.equals(TABLE)
    newest = Checkpoints(store, lease).newest_valid()
    assert newest is not None
    assert newest.step == STEPS
    assert {name: newest.read(name) for name in newest.files} == files_of(STEPS)
    assert store.read("summary.json") == SUMMARY
    assert store.list("journal/") == ()
    assert len(store.list("rollouts/")) == 2, "one bundle and one evaluation"
    assert not store.damaged


def files_of(step: int) -> dict[str, bytes]:
    """The files of a checkpoint."""
    return {"model": b"weights" * step, "state": b"moments" * step}


async def _take_step(journal: Journal, step: int, promise: Promise) -> None:
    done = journal.step(step).keys

    async def commit(record: Record) -> None:
        if (record.slot, record.kind) not in done:
            await journal.commit(record)
            promise(f"{record.kind} {step} {record.slot}")

    for together in zip(*map(stages, GROUPS[step]), strict=True):
        await asyncio.gather(*map(commit, together))
    await commit(Applied(step, f"{step:064x}", {"reward": 0.5}))
    await journal.seal_step(step, GROUPS[step], NUMBERS, NUMBERS)
    promise(f"compacted {step}")


def _is_complete(journal: Journal, step: int) -> bool:
    if step in journal.completed_steps():
        with contextlib.suppress(CorruptData):  # then the step is done again
            journal.load_step(step)
    return step in journal.completed_steps()
