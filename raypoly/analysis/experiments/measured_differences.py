"""The differences of a table: of each arm from the first one and from where it began, with what they show.

    for each in measure_differences(comparison):
        each.tested.interval, each.tested.p_value, each.holm

A difference is measured where both sides have numbers by problem and are of the same problems. Problems whose tests
could not be run on one side are left out of it, and where all seeds have the same problems, out of every seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raypoly.analysis.experiments.arm_comparison import Arm, ArmComparison
from raypoly.analysis.experiments.problem_values import problem_values, sampling_variance, strata_of
from raypoly.analysis.experiments.run_result import EvaluationNumbers, measure_name
from raypoly.analysis.statistics.many_tests import holm
from raypoly.analysis.statistics.paired_differences import PairedDifferences, TestedDifference

BEFORE = None
"""The reference that stands for where each run began: no name, so that an arm may be called anything."""


@dataclass(frozen=True)
class MeasuredDifference:
    """One arm's difference from a reference in one measure."""

    arm: str
    reference: str | None
    """The first arm's name, or `BEFORE`."""
    measure: str
    paired: PairedDifferences
    these_seeds: TestedDifference
    """Over problems, of the runs that there are."""
    all_seeds: TestedDifference | None
    """Over seeds and problems together; None for one seed."""
    evaluations: Sequence[tuple[EvaluationNumbers | None, ...]] = ()
    """The two of each pair."""
    shared: float = 0.0
    """Where seeds have problems of their own, the share of these that several seeds have."""
    left_out: frozenset[str] = frozenset()
    """The problems whose tests could not be run in one of the runs."""
    holm: float = 1.0
    """The p-value of `tested` for many tests, adjusted for all differences of the table (Holm 1979)."""

    @property
    def samples(self) -> int:
        """Of each problem; the fewest where runs differ."""
        sides = [each for pair in self.evaluations for each in pair]
        return min(count for each in sides if each and each.problems for count in each.problems.samples)

    @property
    def sampling(self) -> float | None:
        """The variance of a problem's difference, of one seed, that comes of drawing no more samples; None where it is
        not known. Only power asks for it."""
        moved = [sampling_variance(each, self.measure) for pair in self.evaluations for each in pair]
        known = [each for each in moved if each is not None]
        return 2 * float(np.mean(known)) if known and len(known) == len(moved) else None

    @property
    def tested(self) -> TestedDifference:
        """What may be claimed: over seeds and problems, or of one seed over problems alone."""
        return self.all_seeds or self.these_seeds


def measure_differences(comparison: ArmComparison) -> list[MeasuredDifference]:
    """All that can be measured, adjusted for each other."""
    found = list(_differences(comparison))
    p_values = {(each.arm, each.reference, each.measure): each.tested.family_p_value for each in found}
    adjusted = holm(p_values)
    return [replace(each, holm=adjusted[each.arm, each.reference, each.measure]) for each in found]


def without_difference(comparison: ArmComparison, measured: Sequence[MeasuredDifference]) -> list[str]:
    """Sentences on arms that have pairs with a reference, and no measured difference from it."""
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
    """What a reference is called in a table."""
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
    """The arms that were measured before and after."""
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
    """The ids of those that were asked, also where their tests could not be run."""
    return set(numbers.problems.id) if numbers is not None and numbers.problems is not None else set()


def _strata(evaluations: Sequence[EvaluationNumbers | None], names: Sequence[Sequence[str]]) -> list[list[str]] | None:
    """Of each seed's problems, in the order of `names`; None where one is not known."""
    found = [strata_of(each) for each in evaluations]
    if not all(found):
        return None
    return [[part[name] for name in order] for part, order in zip(found, names, strict=True) if part]
