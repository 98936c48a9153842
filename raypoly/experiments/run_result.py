"""What a run came to, read from its files; nothing is known of what was not measured.

result = result_of(run)
result.after["8"]; result.after["strategies"]; result.step_seconds
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raypoly.errors import CorruptData, StorageError, UsageError
from raypoly.experiments.planned_runs import PlannedRun
from raypoly.reports.run_table import KS, first_and_last, number
from raypoly.run import Run
from raypoly.run_identity import CONFIG_KEY

STRATEGIES = "strategies"
MEASURES = (*KS, STRATEGIES)
"""pass@k by k, and the expected distinct correct strategies in 8 draws."""
CURVES = ("reward", "strategies_correct")
"""Of metrics.jsonl, over the steps."""

Measures = Mapping[str, float | None]


@dataclass(frozen=True)
class RunResult:
    """One run."""

    arm: str
    seed: int
    start: str
    steps: int
    """What is asked for."""
    done: int
    """Steps that are done; fewer than `steps` where it is not finished."""
    finished: bool
    trouble: str
    """Why its files can't be read; empty where they can."""
    before: Measures
    after: Measures
    """On the test split; empty where that was not measured."""
    curves: Mapping[str, Sequence[tuple[int, float]]]
    """(step, value) of each of CURVES."""
    step_seconds: float | None
    """Mean of its steps."""
    training_seconds: float
    evaluation_seconds: float
    """Without start, end and pauses: those of a run that was interrupted are as if it had not been."""

    @property
    def seconds(self) -> float:
        return self.training_seconds + self.evaluation_seconds


def results(runs: Iterable[PlannedRun]) -> list[RunResult]:
    """Of all runs, those that are not begun among them."""
    return [result_of(run) for run in runs]


def result_of(run: PlannedRun) -> RunResult:
    """Of a run as it stands, here or where it was trained."""
    if run.elsewhere is not None:
        return run.elsewhere
    summary: Mapping[str, Any] = {}
    rows: Sequence[Mapping[str, Any]] = []
    trouble = ""
    if (run.place / CONFIG_KEY).exists():
        try:
            read = Run(run.place)
            summary, rows = read.summary, read.rows
        except (CorruptData, StorageError, UsageError, ValueError) as error:
            trouble = str(error)
    done = int(summary.get("steps", 0))
    before, after = first_and_last(summary)
    evaluations = summary.get("evaluations", [])
    paused = math.fsum(p["seconds"] for e in evaluations for p in e.get("pauses", []) if "seconds" in p)
    steps = [row["seconds"]["total"] - row.get("paused_seconds", 0.0) for row in rows if row["seconds"].get("total")]
    return RunResult(
        arm=run.arm,
        seed=run.seed,
        start=run.start,
        steps=run.steps,
        done=done,
        finished=summary.get("state") == "finished" and done == run.steps,
        trouble=trouble,
        before=_measures(before),
        after=_measures(after),
        curves={name: [(row["step"], row[name]) for row in rows if row.get(name) is not None] for name in CURVES},
        step_seconds=math.fsum(steps) / len(steps) if steps else None,
        training_seconds=math.fsum(steps),
        evaluation_seconds=math.fsum(e.get("seconds", 0.0) for e in evaluations) - paused,
    )


def seconds_of(run: PlannedRun) -> float:
    """What a run has taken so far, by its own files."""
    return result_of(run).seconds


def one_line(run: PlannedRun) -> str:
    """Two measures before and after; empty where they were not taken."""
    result = result_of(run)
    words = [
        f"  {name} {number(result.before[key])} -> {number(result.after[key])}"
        for key, name in (("1", "pass@1"), (KS[-1], f"pass@{KS[-1]}"), (STRATEGIES, "strategies"))
        if result.before.get(key) is not None and result.after.get(key) is not None
    ]
    return "".join(words)


def _measures(evaluation: Mapping[str, Any] | None) -> Measures:
    if evaluation is None:
        return {}
    curve = {k: evaluation["pass_at_k"].get(k) for k in KS}
    return {**curve, STRATEGIES: evaluation.get("strategies_correct")}
