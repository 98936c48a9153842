"""Arms beside each other: means and ranges over seeds, and differences between runs of the same seed.

    for comparison in compare_arms(results):
        comparison.arms[0].after("8").mean
        comparison.difference(comparison.arms[1], "8")

Ranges, not intervals: a handful of seeds says no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from raypoly.experiments.run_result import Measures, RunResult


@dataclass(frozen=True)
class SeedSpread:
    """Some values of one measure."""

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> SeedSpread | None:
        """None where none is known."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(math.fsum(known) / len(known), min(known), max(known), len(known))


@dataclass(frozen=True)
class Arm:
    """One arm's runs."""

    name: str
    planned: int
    runs: Sequence[RunResult]
    """The finished ones, in the order of the seeds."""

    def over_seeds(self, value: Callable[[RunResult], float | None]) -> SeedSpread | None:
        return SeedSpread.of(map(value, self.runs))

    def after(self, measure: str) -> SeedSpread | None:
        return self.over_seeds(lambda run: run.after.get(measure))


@dataclass(frozen=True)
class Start:
    """The common start of some arms: one policy a seed, measured on the same problems."""

    arms: Sequence[str]
    measured: Sequence[Measures]
    """A seed each."""

    def before(self, measure: str) -> SeedSpread | None:
        return SeedSpread.of(measures.get(measure) for measures in self.measured)


@dataclass(frozen=True)
class ArmComparison:
    """Arms with as many steps: others are not to be compared."""

    steps: int
    arms: Sequence[Arm]

    @property
    def starts(self) -> Sequence[Start]:
        """The different ones, in the order of the arms. The same policy is measured by every arm of its seed, with the
        same samples; the first one's numbers stand for it."""
        arms: dict[str, list[str]] = {}
        measured: dict[str, dict[int, Measures]] = {}
        for arm in self.arms:
            for run in arm.runs:
                names = arms.setdefault(run.start, [])
                names += [arm.name] if arm.name not in names else []
                if run.before:
                    measured.setdefault(run.start, {}).setdefault(run.seed, run.before)
        return [Start(names, list(measured.get(start, {}).values())) for start, names in arms.items()]

    def difference(self, arm: Arm, measure: str) -> SeedSpread | None:
        """Of an arm from the first one, by pairs of runs with the same seed that began alike."""
        pairs = ((mine.after.get(measure), theirs.after.get(measure)) for mine, theirs in self.pairs(arm))
        return SeedSpread.of(mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None)

    def pairs(self, arm: Arm) -> Sequence[tuple[RunResult, RunResult]]:
        """(The arm's run, the first arm's run) of each seed that both began alike with."""
        first = {(run.seed, run.start): run for run in self.arms[0].runs}
        return [(run, first[run.seed, run.start]) for run in arm.runs if (run.seed, run.start) in first]


def compare_arms(results: Sequence[RunResult]) -> list[ArmComparison]:
    """Tables, by the arms' steps, in the order in which these appear."""
    steps = dict.fromkeys(result.steps for result in results)
    return [ArmComparison(count, _arms([result for result in results if result.steps == count])) for count in steps]


def _arms(results: Sequence[RunResult]) -> Sequence[Arm]:
    by_name: dict[str, list[RunResult]] = {}
    for result in results:
        by_name.setdefault(result.arm, []).append(result)
    return [
        Arm(name, len(runs), sorted((run for run in runs if run.finished), key=lambda run: run.seed))
        for name, runs in by_name.items()
    ]
