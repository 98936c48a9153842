"""Arms over seeds: means and ranges, and tested differences from the first arm and from where each run began.

    for comparison in compare_arms(results):
        comparison.arms[0].after("8").mean
        for each in measure_differences(comparison):
            each.tested.interval, each.tested.p_value, each.holm

A tested difference needs numbers by problem on both sides, of the same problems. Problems whose tests could not be run
on one side are left out, and where all seeds have the same problems, out of every seed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raypoly.analysis.experiments.experiment_config import TRAINING
from raypoly.analysis.experiments.run_result import (
    STRATEGIES,
    EvaluationNumbers,
    Measures,
    RunResult,
    measure_name,
    measured,
    problem_values,
    sampling_variance,
    strata_of,
)
from raypoly.analysis.statistics.intervals import ConfidenceInterval, mean_interval, share_interval
from raypoly.analysis.statistics.paired_differences import PairedDifferences, TestedDifference, holm

BEFORE = None
"""As a reference: where each run began. No name, so that an arm may have any."""


@dataclass(frozen=True)
class SeedSpread:
    mean: float
    low: float
    high: float
    count: int
    deviation: float = 0.0
    """Standard deviation; 0 for one value."""

    @classmethod
    def of(cls, values: Iterable[float | None]) -> SeedSpread | None:
        """None where none is known."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        deviation = statistics.stdev(known) if len(known) > 1 else 0.0
        return cls(math.fsum(known) / len(known), min(known), max(known), len(known), deviation)


@dataclass(frozen=True)
class Arm:
    name: str
    planned: int
    runs: Sequence[RunResult]
    """The finished ones, by seed."""

    def over_seeds(self, value: Callable[[RunResult], float | None]) -> SeedSpread | None:
        return SeedSpread.of(map(value, self.runs))

    def after(self, measure: str) -> SeedSpread | None:
        return self.over_seeds(lambda run: run.after.get(measure))


@dataclass(frozen=True)
class Start:
    """The common start of some arms: a policy for each seed, measured on the same problems."""

    arms: Sequence[str]
    runs: Sequence[RunResult]
    """One for each seed, of those that measured it."""

    def before(self, measure: str) -> SeedSpread | None:
        return SeedSpread.of(run.before.get(measure) for run in self.runs)


@dataclass(frozen=True)
class ArmComparison:
    """Arms of equal steps, or all arms where some are after others."""

    steps: int | None
    """None where arms are after others: each has its own."""
    arms: Sequence[Arm]
    primary: str | None = None
    """The measure that was declared beforehand."""

    @property
    def starts(self) -> Sequence[Start]:
        """The different starts, in the order of the arms; an arm that is after another has none of its own."""
        # Every arm of a seed measures the same policy with the same samples: the first one's numbers stand for it.
        starts: list[tuple[list[str], dict[int, RunResult]]] = []
        for arm in self.arms:
            for run in (run for run in arm.runs if run.begins_with is None):
                place = next((it for it in starts if _may_join(run, it[1])), None)
                if place is None:
                    starts.append(place := ([], {}))
                names, runs = place
                names += [arm.name] if arm.name not in names else []
                if run.seed not in runs or not runs[run.seed].before:
                    runs[run.seed] = run
        return [Start(names, [run for run in runs.values() if run.before]) for names, runs in starts]

    @property
    def measures(self) -> tuple[str, ...]:
        return measured(run for arm in self.arms for run in arm.runs)

    def difference(self, arm: Arm, measure: str) -> SeedSpread | None:
        """Of an arm from the first one, by pairs of runs with the same seed that began alike."""
        pairs = ((mine.after.get(measure), theirs.after.get(measure)) for mine, theirs in self.pairs(arm))
        return SeedSpread.of(mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None)

    def pairs(self, arm: Arm) -> Sequence[tuple[RunResult, RunResult]]:
        """(The arm's run, the first arm's run) of each seed that both began alike with."""
        return [(mine, theirs) for mine, theirs in self._same_seed(arm) if why_unlike(mine, theirs) is None]

    @property
    def unlike(self) -> Mapping[str, Sequence[tuple[RunResult, RunResult]]]:
        """By the reason, runs of a seed that are not compared: (an arm's, the first arm's)."""
        found: dict[str, list[tuple[RunResult, RunResult]]] = {}
        for arm in self.arms[1:]:
            for mine, theirs in self._same_seed(arm):
                if reason := why_unlike(mine, theirs):
                    found.setdefault(reason, []).append((mine, theirs))
        return found

    def _same_seed(self, arm: Arm) -> Iterator[tuple[RunResult, RunResult]]:
        first = {run.seed: run for run in self.arms[0].runs}
        return ((run, first[run.seed]) for run in arm.runs if run.seed in first)


def why_unlike(one: RunResult, other: RunResult) -> str | None:
    """None where they began alike."""
    # Equal keys are not enough: two machines make different warm starts. Digests tell these apart; where a run has
    # none, both must have measured the same before training.
    if one.start != other.start:
        keys = _different_keys(one.start, other.start)
        return f"{', '.join(keys)} {'differ' if len(keys) > 1 else 'differs'}"
    weights = (one.first_weights, other.first_weights)
    sets = [each.problem_set if each else None for each in (one.problems_before, other.problems_before)]
    for digests, what in ((weights, "began with other weights"), (sets, "were measured on other problems")):
        if None not in digests and len(set(digests)) > 1:
            return f"they {what}"
    if None not in weights:
        return None
    if one.begins_with != other.begins_with:  # then what they measured before differs, as it should
        return "nothing says what their chains began with: the first run of one was not measured"
    mine, theirs = ({key: value for key, value in each.before.items() if value is not None} for each in (one, other))
    if not mine or not theirs:
        return "nothing says what they began with: they have no digests, and measured nothing before training"
    return None if mine == theirs else "they did not measure the same before training, and have no digests"


def _different_keys(start: str, other: str) -> list[str]:
    """Keys in which two starts (JSON objects; empty: unknown) differ."""
    mine, theirs = (json.loads(text or "{}") for text in (start, other))
    return sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))


def _may_join(run: RunResult, others: Mapping[int, RunResult]) -> bool:
    # Whether the run began as that of its own seed among `others`, or else with their keys.
    if run.seed in others:
        return why_unlike(run, others[run.seed]) is None
    return all(run.start == other.start for other in others.values())


def compare_arms(results: Sequence[RunResult], primary: str | None = None) -> list[ArmComparison]:
    """A comparison for each number of steps, in order of appearance; a single one where arms are after others.

    `primary`: the measure that was declared beforehand.
    """
    measured = [result for result in results if result.command in TRAINING]
    if any(result.begins_with is not None for result in measured):
        return [ArmComparison(None, _arms(measured), primary)]
    steps = dict.fromkeys(result.steps for result in measured)
    of_steps = {count: [result for result in measured if result.steps == count] for count in steps}
    return [ArmComparison(count, _arms(found), primary) for count, found in of_steps.items()]


def _arms(results: Sequence[RunResult]) -> Sequence[Arm]:
    by_name: dict[str, list[RunResult]] = {}
    for result in results:
        by_name.setdefault(result.arm, []).append(result)
    return [
        Arm(name, len(runs), sorted((run for run in runs if run.finished), key=lambda run: run.seed))
        for name, runs in by_name.items()
    ]


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
    """p of `tested`, adjusted for all differences of the table that are `primary`, or for all that are not."""
    primary: bool = False
    """Whether it was declared beforehand."""

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
    found = [
        each
        for arm, reference, pairs in _paired_sides(comparison)
        for measure in comparison.measures
        for each in _measured(arm, reference, measure, [(mine.numbers, theirs.numbers) for mine, theirs in pairs])
    ]
    declared = [each.measure == comparison.primary and each.reference is not BEFORE for each in found]
    adjusted = dict[int, float]()
    for family in (True, False):
        places = [place for place, primary in enumerate(declared) if primary == family]
        adjusted |= holm({place: found[place].tested.family_p_value for place in places})
    return [replace(each, holm=adjusted[place], primary=declared[place]) for place, each in enumerate(found)]


def without_difference(comparison: ArmComparison, measured: Sequence[MeasuredDifference]) -> list[str]:
    """Sentences on arms with pairs that have no measured difference."""
    known = {(each.arm, each.reference, each.measure) for each in measured}
    said = []
    for arm, reference, pairs in _paired_sides(comparison):
        names = [
            measure_name(measure)
            for measure in comparison.measures
            if (arm, reference, measure) not in known
            and any(None not in (mine.measures.get(measure), theirs.measures.get(measure)) for mine, theirs in pairs)
        ]
        if names:
            said.append(
                f"No difference of {arm} from {reference_words(reference)} in {', '.join(names)}: numbers by problem, "
                "of the same problems, are not known for all pairs."
            )
    return said


def reference_words(reference: str | None) -> str:
    return "where each run began" if reference is BEFORE else reference


@dataclass(frozen=True)
class _Side:
    measures: Measures
    numbers: EvaluationNumbers | None


def _paired_sides(comparison: ArmComparison) -> Iterator[tuple[str, str | None, list[tuple[_Side, _Side]]]]:
    """(arm, reference, a pair for each seed): of every arm from the first, and of those with steps from their start."""

    def after(run: RunResult) -> _Side:
        return _Side(run.after, run.problems_after)

    for arm in comparison.arms[1:]:
        pairs = [(after(mine), after(theirs)) for mine, theirs in comparison.pairs(arm)]
        yield arm.name, comparison.arms[0].name, pairs
    for arm in comparison.arms:
        if any(run.steps for run in arm.runs):
            yield arm.name, BEFORE, [(after(run), _Side(run.before, run.problems_before)) for run in arm.runs]


def _measured(
    arm: str, reference: str | None, measure: str, evaluations: Sequence[tuple[EvaluationNumbers | None, ...]]
) -> Iterator[MeasuredDifference]:
    asked = [[set(each.problems.id) if each and each.problems else set() for each in pair] for pair in evaluations]
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
        arm,
        reference,
        measure,
        paired,
        paired.over_problems(),
        paired.over_both(),
        evaluations=evaluations,
        shared=shared,
        left_out=frozenset(name for (ids, _), kept in zip(asked, known, strict=True) for name in ids - kept),
    )


def _strata(evaluations: Sequence[EvaluationNumbers | None], names: Sequence[Sequence[str]]) -> list[list[str]] | None:
    """[seeds][problems] in the order of `names`; None where one is not known."""
    found = [strata_of(each) for each in evaluations]
    if not all(found):
        return None
    return [[part[name] for name in order] for part, order in zip(found, names, strict=True) if part]


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
