"""Write a run folder with files of every kind with the product's own writers, without a model and without Ray."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.core.values import Group
from raypoly.run.run_identity import resolve_run
from raypoly.run.sinks import MetricsFile
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.sealed_files import encode_table, seal
from raypoly.run.store.step_records import Applied, CompletedStep
from tests.support.sample_groups import make_group, same_group, stages
from tests.support.saved_checkpoint import save_checkpoint
from tests.support.stopping_disk import QuickDisk
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal
from workflows.observers.summary import Summary

STEPS = 124
"""Completed steps. The first hundred are bundled, steps to 119 are indexed, and step 124 is half done."""
EVERY = 10
"""Steps between checkpoints, and between evaluations."""
RESUMED = 60
"""The step at which a second start took over."""


@cache
def _config() -> Config:
    overrides = ["train.steps=200", f"train.checkpoint_every={EVERY}", "train.prompts_per_step=1"]
    return load(None, overrides, lambda text: None)


def config_of(root: Path) -> Config:
    config = _config()
    return config.model_copy(update={"run": config.run.model_copy(update={"dir": str(root)})})


def groups_of(step: int) -> tuple[Group, ...]:
    """One group; three groups for the step that is half done."""
    return tuple(
        make_group(step, slot, 2, tokens=4, unjudged=step % 7 == 0) for slot in range(3 if step == STEPS else 1)
    )


def completed_step(step: int) -> CompletedStep:
    groups = groups_of(step)
    numbers = [np.random.default_rng([step, group.slot]).random(2) for group in groups]
    applied = Applied(step, f"{step:064x}", row_of(step), len(groups))
    return CompletedStep(step, groups, tuple(numbers), tuple(row - 0.5 for row in numbers), applied)


def row_of(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "reward": step / 7,
        "seconds": {"generate": step / 3, "total": 2.0 + step},
        "clipped": step % 2,
        "pauses": [],
        "weight_digest": f"{step:064x}",
    }


def results_of(step: int) -> dict[str, Any]:
    return {"step": step, "split": "validation", "pass_at_k": {"1": step / 1000}}


def table_of(step: int) -> pa.Table:
    return pa.table({"problem_id": ["a", "b"], "correct": [step, 2]})


def checkpoint_of(step: int) -> Mapping[str, bytes]:
    return {"model.safetensors": step.to_bytes(2, "big") * 900, "objective.json": json.dumps({"step": step}).encode()}


def write_run_with_history(root: Path, old: Path) -> None:
    """Write the run to `root`, and to `old` its files as they were when the second start began."""
    asyncio.run(_make(root, old))


async def _make(root: Path, old: Path) -> None:
    for first, end in ((0, RESUMED), (RESUMED, STEPS)):
        _, lease = resolve_run(config_of(root)).open("raypoly train")
        store = LocalStore(root, QuickDisk())
        journal, checkpoints = Journal(store), Checkpoints(store, lease)
        summary, metrics = Summary(store, journal, config_of(root)), MetricsFile(root / "metrics.jsonl")
        for step in range(end):
            if step < first:
                continue
            done = completed_step(step)
            for record in stages(done.groups[0]):
                await journal.commit(record)
            await journal.commit(done.applied)
            await journal.seal_step(step, done.groups, done.rewards, done.advantages)
            if (step + 1) % EVERY == 0:
                save_checkpoint(checkpoints, step + 1, checkpoint_of(step + 1))
                await journal.index_before(step + 1)
                await journal.commit_evaluation(step + 1, "validation", results_of(step + 1), table_of(step + 1))
        for step in range(end):
            summary.add(row_of(step))
            metrics.log(row_of(step))
        summary.write("running")
        store.put_mutable("judge.json", seal({"use": {"calls": float(end)}}))
        metrics.close()
        if end == RESUMED:
            shutil.copytree(root, old)
            await journal.close()
            lease.release()
    for group in groups_of(STEPS):  # one judged, one scored, one generated
        for record in stages(group)[: 3 - group.slot]:
            await journal.commit(record)
    store.commit("evaluations/test-step-000100.json", seal(results_of(100)))
    store.commit("evaluations/test-step-000100.parquet", encode_table(table_of(100), {}))
    await journal.close()
    lease.release()


def same_step(found: CompletedStep, wanted: CompletedStep) -> bool:
    return (
        all(map(same_group, found.groups, wanted.groups))
        and len(found.groups) == len(wanted.groups)
        and [row.tobytes() for row in found.rewards] == [row.tobytes() for row in wanted.rewards]
        and [row.tobytes() for row in found.advantages] == [row.tobytes() for row in wanted.advantages]
        and found.applied == wanted.applied
    )
