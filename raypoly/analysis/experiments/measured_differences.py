"""Measures by problem, and each arm's tested differences from the first arm and from where it began.

    problem_values(run.problems_after, "8")                    # {"puzzle-3": 0.75, ...}
    for each in measure_differences(comparison):
        each.tested.interval, each.tested.p_value, each.holm

A difference needs numbers by problem on both sides, of the same problems. Problems whose tests could not be run on one
side are left out, and where all seeds have the same problems, out of every seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from raypoly.analysis.experiments.arm_comparison import Arm, ArmComparison
from raypoly.analysis.experiments.run_result import STRATEGIES, EvaluationNumbers, RunResult, measure_name
from raypoly.analysis.metrics.pass_at_k import STRATEGY_DRAWS, expected_distinct, pass_at_k
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.statistics.intervals import ConfidenceInterval, mean_interval, share_interval
from raypoly.analysis.statistics.paired_differences import PairedDifferences, TestedDifference
from raypoly.analysis.statistics.significance import holm

BEFORE = None
"""As a reference: where each run began. No name, so that an arm may have any."""


@dataclass(frozen=True)
class MeasuredDifference:
    arm: str
    reference: str | None
    """The first arm's name, or `BEFORE`."""
    measure: str
    paired: PairedDifferences
    these_seeds: TestedDifference
    """Over problems."""
    all_seeds: TestedDifference | None
    """Over seeds and problems; None for one seed."""
    evaluations: Sequence[tuple[EvaluationNumbers | None, ...]] = ()
    """Of each pair."""
    shared: float = 0.0
    """Share of problems that several seeds have, where not all seeds have the same."""
    left_out: frozenset[str] = frozenset()
    """Problems whose tests could not be run in one of the runs."""
    holm: float = 1.0
    """p of `tested`, adjusted for all differences of the table."""

    @property
    def samples(self) -> int:
        """Of each problem; the fewest of any."""
        sides = [each for pair in self.evaluations for each in pair]
        return min(count for each in sides if each and each.problems for count in each.problems.samples)

    @property
    def sampling(self) -> float | None:
        """Variance of one seed's difference at a problem from drawing few samples; None: unknown."""
        moved = [sampling_variance(each, self.measure) for pair in self.evaluations for each in pair]
        known = [each for each in moved if each is not None]
        return 2 * float(np.mean(known)) if known and len(known) == len(moved) else None

    @property
    def tested(self) -> TestedDifference:
        """What may be claimed: over seeds and problems; of one seed, over problems."""
        return self.all_seeds or self.these_seeds


def measure_differences(comparison: ArmComparison) -> list[MeasuredDifference]:
    """All that can be measured, Holm's p among them."""
    found = list(_differences(comparison))
    p_values = {(each.arm, each.reference, each.measure): each.tested.family_p_value for each in found}
    adjusted = holm(p_values)
    return [replace(each, holm=adjusted[each.arm, each.reference, each.measure]) for each in found]


def without_difference(comparison: ArmComparison, measured: Sequence[MeasuredDifference]) -> list[str]:
    """Sentences on arms with pairs that have no measured difference."""
    known = {(each.arm, each.reference, each.measure) for each in measured}
    lacking: dict[tuple[str, str | None], list[str]] = {}
    for arm, reference, measure in _comparable(comparison):
        if (arm, reference, measure) not in known:
            lacking.setdefault((arm, reference), []).append(measure_name(measure))
    return [
        f"No difference of {arm} from {reference_words(reference)} in {', '.join(names)}: numbers by problem, of the "
        "same problems, are not known for all pairs."
        for (arm, reference), names in lacking.items()
    ]


def reference_words(reference: str | None) -> str:
    return "where each run began" if reference is BEFORE else reference


def _comparable(comparison: ArmComparison) -> Iterator[tuple[str, str | None, str]]:
    """(arm, reference, measure) where a pair has the measure on both sides."""
    for arm in comparison.arms[1:]:
        for measure in comparison.measures:
            if comparison.difference(arm, measure) is not None:
                yield arm.name, comparison.arms[0].name, measure
    for arm in _trained(comparison):
        for measure in comparison.measures:
            if any(None not in (run.before.get(measure), run.after.get(measure)) for run in arm.runs):
                yield arm.name, BEFORE, measure


def _trained(comparison: ArmComparison) -> list[Arm]:
    return [arm for arm in comparison.arms if any(run.steps for run in arm.runs)]


def _differences(comparison: ArmComparison) -> Iterator[MeasuredDifference]:
    for arm in comparison.arms[1:]:
        for measure in comparison.measures:
            pairs = [(mine.problems_after, theirs.problems_after) for mine, theirs in comparison.pairs(arm)]
            yield from _measured(arm, comparison.arms[0].name, measure, pairs)
    for arm in _trained(comparison):
        for measure in comparison.measures:
            pairs = [(run.problems_after, run.problems_before) for run in arm.runs]
            yield from _measured(arm, BEFORE, measure, pairs)


def _measured(
    arm: Arm, reference: str | None, measure: str, evaluations: Sequence[tuple[EvaluationNumbers | None, ...]]
) -> Iterator[MeasuredDifference]:
    asked = [[_problems(each) for each in pair] for pair in evaluations]
    values = [[problem_values(each, measure) for each in pair] for pair in evaluations]
    alike = [(mine, theirs) for mine, theirs in values if mine is not None and theirs is not None]
    if not alike or len(alike) < len(values) or any(mine != theirs for mine, theirs in asked):
        return
    crossed = all(ids == asked[0] for ids in asked)
    known = [mine.keys() & theirs.keys() for mine, theirs in alike]
    known = [set.intersection(*known)] * len(known) if crossed else known
    if not all(known):
        return
    names = [sorted(each) for each in known]
    counts = Counter(name for order in names for name in order)
    shared = 0.0 if crossed else sum(count for count in counts.values() if count > 1) / counts.total()
    paired = PairedDifferences.of(
        [[mine[name] for name in order] for (mine, _), order in zip(alike, names, strict=True)],
        [[theirs[name] for name in order] for (_, theirs), order in zip(alike, names, strict=True)],
        crossed=crossed,
        strata=_strata([mine for mine, _ in evaluations], names),
    )
    yield MeasuredDifference(
        arm.name,
        reference,
        measure,
        paired,
        paired.over_problems(),
        paired.over_both(),
        evaluations=evaluations,
        shared=shared,
        left_out=frozenset(name for (ids, _), kept in zip(asked, known, strict=True) for name in ids - kept),
    )


def _problems(numbers: EvaluationNumbers | None) -> set[str]:
    # Also those whose tests could not be run.
    return set(numbers.problems.id) if numbers is not None and numbers.problems is not None else set()


def _strata(evaluations: Sequence[EvaluationNumbers | None], names: Sequence[Sequence[str]]) -> list[list[str]] | None:
    """[seeds][problems] in the order of `names`; None where one is not known."""
    found = [strata_of(each) for each in evaluations]
    if not all(found):
        return None
    return [[part[name] for name in order] for part, order in zip(found, names, strict=True) if part]


Values = Mapping[str, float]
"""By problem id."""


def problem_values(numbers: EvaluationNumbers | None, measure: str) -> Values | None:
    """The measure, a key of `RunResult.after`, of each problem whose tests could be run; their mean is the run's.

    None where there is none, or one is unknown.
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
    """Variance of a problem's measure over draws of samples, the mean over problems.

    Takes a problem's share of right samples for its chance. None of strategies and of attempts drawn jointly.
    """
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
    """Problems whose tests could be run; None where there is none."""
    if numbers is None or numbers.problems is None:
        return None
    counts = numbers.problems.of_known()
    return counts if counts.id else None


def interval_after(runs: Sequence[RunResult], measure: str) -> ConfidenceInterval | None:
    """Of the mean over runs, over problems; None where a run's values are unknown."""
    return _interval([run.problems_after for run in runs], measure)


def interval_before(runs: Sequence[RunResult], measure: str) -> ConfidenceInterval | None:
    """As `interval_after`, where the runs began."""
    return _interval([run.problems_before for run in runs], measure)


def _interval(numbers: Sequence[EvaluationNumbers | None], measure: str) -> ConfidenceInterval | None:
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
    """By problem id, the part in a fixed share that it was drawn from; None where there is one part, or unknown."""
    if numbers is None or numbers.problems is None:
        return None
    counts = numbers.problems
    parts = {name: part for name, part in zip(counts.id, counts.stratum, strict=False) if part is not None}
    return parts if len(parts) == len(counts.id) and len(set(parts.values())) > 1 else None
