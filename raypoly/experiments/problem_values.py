"""A measure of an evaluation, problem by problem, and the interval of its mean.

values = problem_values(run.problems_after, "8")           # {"puzzle-3": 0.75, ...}
interval_after(arm.runs, "8")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from raypoly.experiments.run_result import STRATEGIES, EvaluationNumbers, RunResult
from raypoly.metrics.pass_at_k import STRATEGY_DRAWS, expected_distinct, pass_at_k
from raypoly.statistics.intervals import ConfidenceInterval, mean_interval, share_interval

Values = Mapping[str, float]
"""By problem id."""


def problem_values(numbers: EvaluationNumbers | None, measure: str) -> Values | None:
    """The measure, a key of `RunResult.after`, of each problem. None where it is unknown of any, as in older files.

    Their mean is the run's measure.
    """
    if numbers is None or numbers.problems is None or not numbers.problems.id:
        return None
    counts = numbers.problems
    found: dict[str, float] = {}
    for name, samples, correct, sizes in zip(counts.id, counts.samples, counts.correct, counts.strategies, strict=True):
        if measure == STRATEGIES:
            if sizes is None or samples < STRATEGY_DRAWS:
                return None
            found[name] = expected_distinct(samples, sizes, STRATEGY_DRAWS)
        else:
            if correct is None or samples < int(measure):
                return None
            found[name] = pass_at_k(samples, correct, int(measure))
    return found


def interval_after(runs: Sequence[RunResult], measure: str) -> ConfidenceInterval | None:
    """Over problems, of the mean over finished runs; None where a run's values are unknown."""
    return _interval([problem_values(run.problems_after, measure) for run in runs], measure)


def interval_before(runs: Sequence[RunResult], measure: str) -> ConfidenceInterval | None:
    """As `interval_after`, where the runs began."""
    return _interval([problem_values(run.problems_before, measure) for run in runs], measure)


def _interval(rows: Sequence[Values | None], measure: str) -> ConfidenceInterval | None:
    """A problem that several runs have counts as one."""
    known = [row for row in rows if row is not None]
    if not known or len(known) < len(rows):
        return None
    values = np.array([value for row in known for value in row.values()])
    names = [name for row in known for name in row]
    if measure == STRATEGIES:
        return mean_interval(values, clusters=names)
    return share_interval(values, clusters=names)
