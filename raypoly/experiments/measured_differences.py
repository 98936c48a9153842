"""The differences of a table: of each arm from the first one and from where it began, with what they show.

    for each in measure_differences(comparison):
        each.tested.interval, each.tested.p_value, each.holm

A difference is measured where both sides have numbers by problem and are of the same problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raypoly.experiments.arm_comparison import Arm, ArmComparison
from raypoly.experiments.problem_values import problem_values, sampling_variance, strata_of
from raypoly.experiments.run_result import EvaluationNumbers, measure_name
from raypoly.statistics.many_tests import holm
from raypoly.statistics.paired_differences import PairedDifferences, TestedDifference

BEFORE = "before"
"""The reference that stands for where each run began."""


@dataclass(frozen=True)
class MeasuredDifference:
    """One arm's difference from a reference in one measure."""

    arm: str
    reference: str
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
    holm: float = 1.0
    """The p-value of `tested`, adjusted for all differences of the table (Holm 1979)."""

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
    p_values = {(each.arm, each.reference, each.measure): each.tested.p_value for each in found}
    adjusted = holm(p_values)
    return [replace(each, holm=adjusted[each.arm, each.reference, each.measure]) for each in found]


def without_difference(comparison: ArmComparison, measured: Sequence[MeasuredDifference]) -> list[str]:
    """Sentences on arms that have pairs with the first one, and no measured difference from it."""
    first = comparison.arms[0].name
    known = {(each.arm, each.measure) for each in measured if each.reference == first}
    said = []
    for arm in comparison.arms[1:]:
        lacking = [
            measure_name(measure)
            for measure in comparison.measures
            if (arm.name, measure) not in known and comparison.difference(arm, measure) is not None
        ]
        if lacking:
            said.append(
                f"No difference of {arm.name} from {first} in {', '.join(lacking)}: numbers by problem, of the same "
                "problems, are not known for all pairs."
            )
    return said


def _differences(comparison: ArmComparison) -> Iterator[MeasuredDifference]:
    for arm in comparison.arms[1:]:
        for measure in comparison.measures:
            pairs = [(mine.problems_after, theirs.problems_after) for mine, theirs in comparison.pairs(arm)]
            yield from _measured(arm, comparison.arms[0].name, measure, pairs)
    for arm in comparison.arms:
        if not any(run.steps for run in arm.runs):  # measured once
            continue
        for measure in comparison.measures:
            pairs = [(run.problems_after, run.problems_before) for run in arm.runs]
            yield from _measured(arm, BEFORE, measure, pairs)


def _measured(
    arm: Arm, reference: str, measure: str, evaluations: Sequence[tuple[EvaluationNumbers | None, ...]]
) -> Iterator[MeasuredDifference]:
    pairs = [tuple(problem_values(each, measure) for each in pair) for pair in evaluations]
    known = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    alike = [(mine, theirs) for mine, theirs in known if mine.keys() == theirs.keys()]
    if not alike or len(alike) < len(pairs):
        return
    names = [sorted(mine) for mine, _ in alike]
    crossed, counts = all(order == names[0] for order in names), Counter(name for order in names for name in order)
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
    )


def _strata(evaluations: Sequence[EvaluationNumbers | None], names: Sequence[Sequence[str]]) -> list[list[str]] | None:
    """Of each seed's problems, in the order of `names`; None where one is not known."""
    found = [strata_of(each) for each in evaluations]
    if not all(found):
        return None
    return [[part[name] for name in order] for part, order in zip(found, names, strict=True) if part]
