"""How long a step waits for each stage and for nothing else, over timed services."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.service_times import Times
from tests.support.timed_training import measure_ahead, measure_step
from tests.support.virtual_clock import VirtualLoop, run_virtual

MOST_EXPOSED = 0.05
"""The largest share of a step in which scoring and judging may be waited for, beyond the last group's tail."""
SHOWN = ("generate", "score", "judge", "learn", "sync", "idle")
"""The stages, in the order of a step."""


@dataclass(frozen=True)
class ExposedSeconds:
    """Seconds of a version's steps in which a stage alone was waited for; means over the steps."""

    total: float
    exposed: Mapping[str, float]
    tail: float
    """From the end of generation to the last group's labels."""
    in_tail: float
    """Scoring and judging exposed in the tail."""
    beyond: float
    """Scoring and judging exposed beyond it."""
    share: float
    """`beyond` of all seconds of the steps."""
    worst: float
    """That share in the step where it is largest."""


def compare_ahead(steps: int, workers: int, at_once: int) -> tuple[float, float]:
    """Seconds a step without and with `train.ahead`, where sampling and learning take the same time."""
    times = [Times.drawn(seed, at_once) for seed in range(steps)]
    without, ahead = (run_virtual(measure_ahead(it, times, workers)) for it in (0, 1))
    return without, ahead


def measure_exposed(
    version: str, shared: bool, steps: int, workers: int, at_once: int, real_time: bool = False
) -> ExposedSeconds:
    """Run `steps` steps of a version, each with service times of its own.

    `shared`: the learner and the engine share a device. `workers`: scorers. `at_once`: responses decoded beside each
    other. `real_time`: sleep for true seconds, where a virtual clock does not.
    """
    rows = []
    for seed in range(steps):
        with asyncio.Runner(loop_factory=None if real_time else VirtualLoop) as runner:
            times = Times.drawn(seed, at_once)
            rows.append(runner.run(measure_step(version, times, workers, shared)))
    totals = [row["seconds"]["total"] for row in rows]
    beyond = [row["exposed"]["score"] + row["exposed"]["judge"] - row["tail"]["exposed"] for row in rows]
    return ExposedSeconds(
        total=statistics.mean(totals),
        exposed={stage: statistics.mean(row["exposed"][stage] for row in rows) for stage in SHOWN},
        tail=statistics.mean(row["tail"]["seconds"] for row in rows),
        in_tail=statistics.mean(row["tail"]["exposed"] for row in rows),
        beyond=statistics.mean(beyond),
        share=sum(beyond) / sum(totals),
        worst=max(part / whole for part, whole in zip(beyond, totals, strict=True)),
    )
