"""Means and ranges of arms over seeds, and differences between runs of the same seed.

    for comparison in compare_arms(results):
        comparison.arms[0].after("8").mean
        comparison.difference(comparison.arms[1], "8")

`raypoly.analysis.experiments.measured_differences` adds intervals and tests, where numbers by problem are known.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from raypoly.analysis.experiments.experiment_config import TRAINING
from raypoly.analysis.experiments.run_result import RunResult, measured


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
        return cls(math.fsum(known) / len(known), min(known), max(known), len(known), _deviation(known))


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
        return [(mine, theirs) for mine, theirs in self._same_seed(arm) if began_alike(mine, theirs)]

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


def began_alike(one: RunResult, other: RunResult) -> bool:
    """Whether two runs of a seed, or their chains, began with the same policy, measured in the same way."""
    return why_unlike(one, other) is None


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
        return began_alike(run, others[run.seed])
    return all(run.start == other.start for other in others.values())


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def compare_arms(results: Sequence[RunResult]) -> list[ArmComparison]:
    """A comparison for each number of steps, in order of appearance; a single one where arms are after others."""
    measured = [result for result in results if result.command in TRAINING]
    if any(result.begins_with is not None for result in measured):
        return [ArmComparison(None, _arms(measured))]
    steps = dict.fromkeys(result.steps for result in measured)
    return [ArmComparison(count, _arms([result for result in measured if result.steps == count])) for count in steps]


def _arms(results: Sequence[RunResult]) -> Sequence[Arm]:
    by_name: dict[str, list[RunResult]] = {}
    for result in results:
        by_name.setdefault(result.arm, []).append(result)
    return [
        Arm(name, len(runs), sorted((run for run in runs if run.finished), key=lambda run: run.seed))
        for name, runs in by_name.items()
    ]
