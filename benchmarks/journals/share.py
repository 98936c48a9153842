"""How much of a step's time goes into waiting for the journal and for checkpoints, measured inside one real training.

    python -m benchmarks.journals.share FOLDER [section.key=value ...]      # one JSON object

A wait counts where nothing else of the step goes on meanwhile: no group is generated, scored, judged or learnt from.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import workflows.startup.open_run
import workflows.train
from raypoly.core import settings
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.journal import Journal
from workflows.step.run_durability import RunDurability
from workflows.step.stopwatch import Stopwatch
from workflows.train import Training

Interval = tuple[float, float]
COMMITS: list[Interval] = []
BUSY: list[Interval] = []
STEPS: list[Interval] = []
CHECKPOINTS: list[Interval] = []
WRITINGS: list[Interval] = []

Call = Callable[..., Coroutine[Any, Any, Any]]


@contextmanager
def into(intervals: list[Interval]) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        intervals.append((started, time.perf_counter()))


def timed(call: Call, intervals: list[Interval]) -> Call:
    @wraps(call)
    async def measured(*arguments: Any) -> Any:
        with into(intervals):
            return await call(*arguments)

    return measured


class TimedJournal(Journal):
    """Notes when somebody waits for it."""

    commit = timed(Journal.commit, COMMITS)
    seal_step = timed(Journal.seal_step, COMMITS)
    index_before = timed(Journal.index_before, COMMITS)


class TimedStopwatch(Stopwatch):
    """Notes when any stage is busy."""

    @contextmanager
    def stage(self, name: str, slot: int | None = None) -> Iterator[None]:
        with into(BUSY), super().stage(name, slot):
            yield


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """The same time in disjoint intervals, ascending."""
    found: list[list[float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return [(start, end) for start, end in found]


def seconds(intervals: Sequence[Interval]) -> float:
    return sum(end - start for start, end in union(intervals))


def within(intervals: Sequence[Interval], step: Interval) -> list[Interval]:
    cut = [(max(start, step[0]), min(end, step[1])) for start, end in intervals]
    return [(start, end) for start, end in cut if start < end]


def main() -> None:
    workflows.startup.open_run.Journal = TimedJournal  # type: ignore[attr-defined]
    workflows.train.Stopwatch = TimedStopwatch  # type: ignore[attr-defined]
    RunDurability.checkpoint = timed(RunDurability.checkpoint, CHECKPOINTS)  # type: ignore[method-assign]
    CheckpointWriter._save = timed(CheckpointWriter._save, WRITINGS)  # type: ignore[method-assign]
    Training.step = timed(Training.step, STEPS)  # type: ignore[method-assign]
    workflows.train.run(settings.load(None, [f"run.dir={sys.argv[1]}", *sys.argv[2:]]))
    rows = []
    for step in STEPS[1:]:  # the first one warms up
        commits, busy = within(COMMITS, step), within(BUSY, step)
        exposed = seconds([*commits, *busy]) - seconds(busy)
        rows.append((exposed, seconds(commits), step[1] - step[0]))
    exposed, waited, total = (sum(column) for column in zip(*rows, strict=True))
    steps = [row[2] for row in rows]
    print(
        json.dumps(
            {
                "steps": len(rows),
                "step_seconds": statistics.median(steps),
                "share": exposed / total,
                "waited": waited / total,
                "checkpoints": len(CHECKPOINTS),
                "checkpoint_seconds": statistics.mean(end - start for start, end in CHECKPOINTS),
                "writing_seconds": statistics.mean(end - start for start, end in WRITINGS),
            }
        )
    )


if __name__ == "__main__":
    main()
