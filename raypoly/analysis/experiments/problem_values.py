"""A measure of an evaluation, problem by problem, and the interval of its mean.

values = problem_values(run.problems_after, "8")           # {"puzzle-3": 0.75, ...}
interval_after(arm.runs, "8")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from raypoly.analysis.experiments.run_result import STRATEGIES, EvaluationNumbers, RunResult
from raypoly.analysis.metrics.pass_at_k import STRATEGY_DRAWS, expected_distinct, pass_at_k
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.statistics.intervals import ConfidenceInterval, mean_interval, share_interval

Values = Mapping[str, float]
"""By problem id."""


def problem_values(numbers: EvaluationNumbers | None, measure: str) -> Values | None:
    """The measure, a key of `RunResult.after`, of each problem whose tests could be run. None where there is none, or
    it is unknown of one of them, as in older files.

    Their mean is the run's measure.
    """
    counts = _known(numbers)
    if counts is None or numbers is None:
        return None
    if measure != STRATEGIES:
        return counts.pass_at_k(int(measure), numbers.select)
    found: dict[str, float] = {}
    for name, samples, sizes in zip(counts.id, counts.samples, counts.strategies, strict=True):
        if sizes is None or samples < STRATEGY_DRAWS:
            return None
        found[name] = expected_distinct(samples, sizes, STRATEGY_DRAWS)
    return found


def sampling_variance(numbers: EvaluationNumbers | None, measure: str) -> float | None:
    """How far other samples of the same policy would move a problem's measure: the variance, in the mean over problems,
    where each problem's share of right samples is taken for its chance. None where that is not known: of strategies,
    and of attempts that are drawn jointly."""
    counts = _known(numbers)
    if measure == STRATEGIES or counts is None or any(counts.blocks) or problem_values(numbers, measure) is None:
        return None
    values = {n: np.array([pass_at_k(n, hits, int(measure)) for hits in range(n + 1)]) for n in set(counts.samples)}
    found = []
    for samples, correct in zip(counts.samples, counts.correct, strict=True):
        chances = stats.binom.pmf(np.arange(samples + 1), samples, (correct or 0) / samples)
        found.append(float(chances @ values[samples] ** 2 - (chances @ values[samples]) ** 2))
    return float(np.mean(found))


def _known(numbers: EvaluationNumbers | None) -> ProblemCounts | None:
    """Of the problems whose tests could be run; None where there is none."""
    if numbers is None or numbers.problems is None:
        return None
    counts = numbers.problems.of_known()
    return counts if counts.id else None


def interval_after(runs: Sequence[RunResult], measure: str) -> ConfidenceInterval | None:
    """Over problems, of the mean over finished runs; None where a run's values are unknown."""
    return _interval([run.problems_after for run in runs], measure)


def interval_before(runs: Sequence[RunResult], measure: str) -> ConfidenceInterval | None:
    """As `interval_after`, where the runs began."""
    return _interval([run.problems_before for run in runs], measure)


def _interval(numbers: Sequence[EvaluationNumbers | None], measure: str) -> ConfidenceInterval | None:
    """A problem that several runs have counts as one; problems are drawn within their strata."""
    rows = [problem_values(each, measure) for each in numbers]
    known = [row for row in rows if row is not None]
    if not known or len(known) < len(rows):
        return None
    values = np.array([value for row in known for value in row.values()])
    names = [name for row in known for name in row]
    found = [strata_of(each) for each in numbers]
    strata = [part[name] for part, row in zip(found, known, strict=True) if part for name in row]
    kept = strata if len(strata) == len(names) else None
    interval = mean_interval if measure == STRATEGIES else share_interval
    return interval(values, clusters=names, strata=kept)


def strata_of(numbers: EvaluationNumbers | None) -> Mapping[str, str] | None:
    """By problem id, the part of all problems that each was drawn from in a fixed share. None where all are of one
    part, or it is not known, as in older files."""
    if numbers is None or numbers.problems is None:
        return None
    counts = numbers.problems
    parts = {name: part for name, part in zip(counts.id, counts.stratum, strict=False) if part is not None}
    return parts if len(parts) == len(counts.id) and len(set(parts.values())) > 1 else None
