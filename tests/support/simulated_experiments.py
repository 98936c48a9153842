"""Experiments made of random numbers, whose truth is known: how often an interval holds it, how often a test rejects.

for cell in all_cells(): cell.measured(experiments=2000, rng).ok
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from raypoly.statistics.intervals import ConfidenceInterval, mean_interval, share_interval
from raypoly.statistics.many_tests import holm
from raypoly.statistics.paired_differences import PairedDifferences
from raypoly.statistics.power import DifferenceSpread, ExperimentSize, power

TOLERANCE = 2.6
"""Standard errors of the simulation by which a share may lie outside its bounds."""
PROBLEMS = (45, 64, 256)
SEEDS = (3, 5)
SPREADS = (0.02, 0.06, 0.12)
SHARES = (0.5, 0.7, 0.97)
OVER_PROBLEMS, OVER_BOTH = 0.25, 0.1
"""Standard deviations of a problem's difference, and of what a seed adds to it at that problem."""

Draw = Callable[[np.random.Generator], bool]


@dataclass(frozen=True)
class Found:
    """How often an event was seen."""

    share: float
    low: float
    high: float
    experiments: int

    @property
    def ok(self) -> bool:
        """Whether the share is within its bounds, but for the simulation's own error."""
        return self.low - self._slack(self.low) <= self.share <= self.high + self._slack(self.high)

    def _slack(self, bound: float) -> float:
        return TOLERANCE * math.sqrt(bound * (1 - bound) / self.experiments)


@dataclass(frozen=True)
class Cell:
    """One kind of experiment, and the bounds that the share of events has to keep."""

    name: str
    draw: Draw
    """One experiment: whether the interval holds the truth, or the test rejects."""
    low: float = 0.93
    high: float = 0.97

    def measured(self, experiments: int, rng: np.random.Generator) -> Found:
        share = float(np.mean([self.draw(rng) for _ in range(experiments)]))
        return Found(share, self.low, self.high, experiments)


def difference_cells() -> Iterator[Cell]:
    """Differences over seeds and problems, with and without an effect."""
    for effect in (0.0, 0.1):
        for problems in PROBLEMS:
            for seeds in SEEDS:
                for spread in SPREADS:
                    name = f"difference {effect:g}, {problems} problems, {seeds} seeds, spread {spread:g}"
                    yield Cell(name, _both(effect, problems, seeds, spread), low=0.92 if seeds == 3 else 0.93)
    for spread in SPREADS:
        name = f"difference 0, 60 problems, 2 seeds, spread {spread:g}"
        yield Cell(name, _both(0.0, 60, 2, spread), low=0.89)


def fixed_seed_cells() -> Iterator[Cell]:
    """Differences over problems, seeds fixed: the truth is that of the drawn seeds."""
    for effect in (0.0, 0.1):
        for problems in PROBLEMS:
            yield Cell(f"difference {effect:g}, {problems} problems, these seeds", _fixed(effect, problems))
    for share in SHARES:
        for problems in PROBLEMS:
            name = f"difference 0 of right or wrong at {share:g}, {problems} problems, these seeds"
            # hardly any of 45 or 64 problems differs: a discrete outcome, whose interval can't be narrower
            high = 0.97 if share < 0.9 else 0.99 if problems > 100 else 1.0
            yield Cell(name, _paired_binary(share, problems), high=high)


def own_problem_cells() -> Iterator[Cell]:
    """Differences where each seed has problems of its own."""
    for spread in SPREADS:
        for seeds in SEEDS:
            yield Cell(f"own problems, 64, {seeds} seeds, spread {spread:g}", _own(seeds, spread), low=0.93)


def share_cells() -> Iterator[Cell]:
    """Intervals of an arm's share of solved problems; mean pass@1 of problems that differ in difficulty."""
    for share in SHARES:
        for problems in PROBLEMS:
            high = 0.99 if share > 0.9 else 0.97
            yield Cell(f"share {share:g}, {problems} problems", _binary(share, problems), high=high)
            yield Cell(f"pass@1 {share:g}, {problems} problems", _graded(share, problems), high=high)


def strategy_cells() -> Iterator[Cell]:
    for problems in PROBLEMS:
        yield Cell(f"strategies in 8, {problems} problems", _strategies(problems))


def cluster_cells() -> Iterator[Cell]:
    """A judge's agreement on groups, several of one problem."""
    yield Cell("44 groups of 44 problems, agreement 1 in 95 %", _agreement(44, 1), high=0.99)
    for groups in (1, 8):
        yield Cell(f"{64 * groups} groups of 64 problems, correlated", _clustered(64, groups))


def rejection_cells() -> Iterator[Cell]:
    """Tests of a true hypothesis."""
    for seeds, spread in ((3, 0.02), (5, 0.02), (5, 0.06)):
        yield Cell(f"t over both rejects, {seeds} seeds, spread {spread:g}", _rejects_both(seeds, spread), 0.04, 0.06)
    yield Cell("random signs over 64 problems reject", _rejects_signs, 0.04, 0.06)
    yield Cell("Holm: any of 12 rejected", _rejects_family, 0.0, 0.05)


def power_cells() -> Iterator[Cell]:
    """Found differences, within three points of what `power` says."""
    for difference in (0.05, 0.1):
        for problems, seeds, spread in ((64, 3, 0.02), (64, 5, 0.06), (256, 5, 0.02), (45, 1, 0.0)):
            said = power(
                difference, ExperimentSize(problems, seeds), DifferenceSpread(OVER_PROBLEMS, spread, OVER_BOTH)
            )
            name = f"finds {difference:g}, {problems} problems, {seeds} seeds, spread {spread:g} (said {said:.2f})"
            yield Cell(name, _finds(difference, problems, seeds, spread), max(0, said - 0.03), min(1, said + 0.03))


def all_cells() -> Iterator[Cell]:
    for kind in (
        difference_cells,
        fixed_seed_cells,
        own_problem_cells,
        share_cells,
        strategy_cells,
        cluster_cells,
        rejection_cells,
        power_cells,
    ):
        yield from kind()


def _differences(
    rng: np.random.Generator, effect: float, problems: int, seeds: int, spread: float
) -> PairedDifferences:
    of_problems = rng.normal(effect, OVER_PROBLEMS, problems)
    table = of_problems + rng.normal(0, spread, (seeds, 1)) + rng.normal(0, OVER_BOTH, (seeds, problems))
    return PairedDifferences(tuple(table), crossed=True)


def _holds(interval: ConfidenceInterval, truth: float) -> bool:
    return not interval.excludes(truth)


def _both(effect: float, problems: int, seeds: int, spread: float) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        found = _differences(rng, effect, problems, seeds, spread).over_both()
        assert found is not None
        return _holds(found.interval, effect)

    return draw


def _fixed(effect: float, problems: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        shifts = rng.normal(0, 0.06, (3, 1))
        table = rng.normal(effect, OVER_PROBLEMS, problems) + shifts + rng.normal(0, OVER_BOTH, (3, problems))
        interval = PairedDifferences(tuple(table), crossed=True).over_problems(permutations=0).interval
        return _holds(interval, effect + float(shifts.mean()))

    return draw


def _paired_binary(share: float, problems: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        easy = rng.random(problems) < 0.5  # half of the problems have the same outcome for both arms
        one, other = (rng.random((2, problems)) < share).astype(float)
        found = PairedDifferences.of([one], [np.where(easy, one, other)])
        return _holds(found.over_problems(permutations=0).interval, 0.0)

    return draw


def _own(seeds: int, spread: float) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        rows = [rng.normal(0.1, OVER_PROBLEMS, 64) + rng.normal(0, spread) for _ in range(seeds)]
        found = PairedDifferences(tuple(rows), crossed=False).over_both()
        assert found is not None
        return _holds(found.interval, 0.1)

    return draw


def _binary(share: float, problems: int) -> Draw:
    return lambda rng: _holds(share_interval((rng.random(problems) < share).astype(float)), share)


def _graded(share: float, problems: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        chances = rng.beta(2 * share, 2 * (1 - share), problems)
        return _holds(share_interval(rng.binomial(64, chances) / 64), share)

    return draw


def _strategies(problems: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        values = np.where(rng.random(problems) < 0.7, rng.gamma(4, 0.4, problems), 0.0)
        return _holds(mean_interval(values), 0.7 * 1.6)

    return draw


def _agreement(problems: int, groups: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        count = problems * groups
        values = np.where(rng.random(count) < 0.95, 1.0, rng.uniform(0, 1, count))
        return _holds(share_interval(values, lowest=-0.5), 0.975)

    return draw


def _clustered(problems: int, groups: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        chances = rng.beta(2.1, 0.9, problems)  # intraclass correlation of .69 with the noise below
        values = np.clip(chances[:, None] + rng.normal(0, 0.12, (problems, groups)), -0.5, 1.5)
        names = np.repeat(np.arange(problems), groups)
        return _holds(mean_interval(values.ravel(), clusters=names.tolist()), 0.7)

    return draw


def _rejects_both(seeds: int, spread: float) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        found = _differences(rng, 0.0, 64, seeds, spread).over_both()
        assert found is not None
        return found.p_value < 0.05

    return draw


def _rejects_signs(rng: np.random.Generator) -> bool:
    return PairedDifferences((rng.normal(0, OVER_PROBLEMS, 64),), crossed=True).over_problems(999).p_value < 0.05


def _rejects_family(rng: np.random.Generator) -> bool:
    """Three arms, four measures: the arms share the first one, the measures their problems."""
    first = rng.normal(0, 1, (4, 5, 64))
    p_values = {}
    for arm in range(3):
        for measure in range(4):
            rows = rng.normal(0, 1, (5, 64)) - first[measure]
            found = PairedDifferences(tuple(rows), crossed=True).over_both()
            assert found is not None
            p_values[arm, measure] = found.p_value
    return min(holm(p_values).values()) < 0.05


def _finds(difference: float, problems: int, seeds: int, spread: float) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        found = _differences(rng, difference, problems, seeds, spread)
        tested = found.over_both() or found.over_problems(permutations=0)
        return tested.interval.excludes(0.0)

    return draw
