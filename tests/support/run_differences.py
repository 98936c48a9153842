"""Compare a run that was killed with an undisturbed one."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from raypoly import Run

TIMED = ("cpu_seconds",)
"""Columns of the rollouts that hold times and may differ, as a turn's seconds may."""


def run_differences(run: Run, undisturbed: Run) -> list[str]:
    """Sentences about what differs: weights, digests of each step's weights, contents of the rollouts."""
    return list(_differences(run, undisturbed))


def _differences(run: Run, undisturbed: Run) -> Iterator[str]:
    steps, digests = [row["step"] for row in run.rows], [row["weight_digest"] for row in run.rows]
    expected = [row["weight_digest"] for row in undisturbed.rows]
    if steps != list(range(len(expected))):
        yield f"metrics.jsonl has rows of steps {steps}"
    elif digests != expected:
        first = next(step for step in steps if digests[step] != expected[step])
        yield f"the weights differ from step {first} on"
    if weights_hash(run) != weights_hash(undisturbed):
        yield "the final weights differ"
    if run.steps != undisturbed.steps:
        yield f"there are rollouts of steps {run.steps}, not of {undisturbed.steps}"
    for step in set(run.steps) & set(undisturbed.steps):
        if rollout_content(run.stored(step)) != rollout_content(undisturbed.stored(step)):
            yield f"the rollouts of step {step} differ"
        if rollout_content(run.drafts(step)) != rollout_content(undisturbed.drafts(step)):
            yield f"the drafts of step {step} differ"
    for row, step in ((row, row["step"]) for row in run.rows if row["step"] in run.steps):
        found = Counter(run.rollouts(step).column("status").to_pylist())
        if row["statuses"] != found:
            yield f"step {step} counts the verdicts {row['statuses']} and has {dict(found)}"
    left = run.store.list("journal/")
    if left:
        yield f"{left[0]} was left behind"
    damaged = run.store.list("damaged/")
    if damaged:
        yield f"{damaged[0]} was set aside"


def weights_hash(run: Run) -> str:
    """SHA-256 of the final weights' file."""
    return hashlib.sha256(run.store.read("model/model.safetensors")).hexdigest()


def rollout_content(table: pa.Table) -> list[object]:
    """The rows of a step's rollouts without times."""
    rows = table.drop_columns(list(TIMED)).to_pylist()
    for turn in (turn for row in rows for turn in row.get("turns") or ()):
        del turn["seconds"]
    return list(map(repr, rows))  # NaN is NaN
