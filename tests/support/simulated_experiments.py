"""Experiments made of random numbers, whose truth is known: how often an interval holds it, how often a test rejects.

for cell in all_cells(): cell.measured(experiments=2000, rng).ok
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from raypoly.analysis.statistics.intervals import mean_interval, share_interval
from raypoly.analysis.statistics.paired_differences import PairedDifferences, TestedDifference
from raypoly.analysis.statistics.power import DifferenceSpread, ExperimentSize, power
from raypoly.core.values import Float64
from tests.support.simulated_cell import PROBLEMS, SHARES, Cell, Draw, holds, parts_of

PART_SHARES = {0.5: (0.9, 0.5, 0.5, 0.1), 0.7: (1.0, 0.9, 0.7, 0.2), 0.97: (1.0, 1.0, 0.97, 0.9)}
"""By the share of all problems, about: that of each part."""


def share_cells() -> Iterator[Cell]:
    """Intervals of an arm's share of solved problems; mean pass@1 of problems that differ in difficulty."""
    for share in SHARES:
        for problems in PROBLEMS:
            high = 0.99 if share > 0.9 else 0.97
            yield Cell(f"share {share:g}, {problems} problems", _binary(share, problems), high=high)
            yield Cell(f"pass@1 {share:g}, {problems} problems", _graded(share, problems), high=high)


def part_share_cells() -> Iterator[Cell]:
    """Shares where the problems are drawn from parts in fixed shares, and the parts differ."""
    for share, of_parts in PART_SHARES.items():
        for problems in PROBLEMS:
            high = 0.99 if share > 0.9 else 0.97
            name = f"parts, {share:g} or so, {problems} problems"
            yield Cell(f"share by {name}", _stratified_share(of_parts, problems, graded=False), high=high)
            yield Cell(f"pass@1 by {name}", _stratified_share(of_parts, problems, graded=True), high=high)


def strategy_cells() -> Iterator[Cell]:
    """Distinct strategies of problems that are solved, and 0 of the others; up to always where few are solved."""
    for solved in (0.03, 0.1, 0.7):
        for problems in PROBLEMS:
            high = 1.0 if solved * problems < 30 else 0.97
            yield Cell(
                f"strategies in 8, {solved:g} solved, {problems} problems", _strategies(problems, solved), high=high
            )


def cluster_cells() -> Iterator[Cell]:
    """A judge's agreement on groups, several of one problem."""
    yield Cell("44 groups of 44 problems, agreement 1 in 95 %", _agreement(44, 1), high=0.99)
    for groups in (1, 8):
        yield Cell(f"{64 * groups} groups of 64 problems, correlated", _clustered(64, groups))


def all_cells() -> Iterator[Cell]:
    for kind in (
        difference_cells,
        fixed_seed_cells,
        own_problem_cells,
        share_cells,
        part_share_cells,
        differing_part_cells,
        strategy_cells,
        cluster_cells,
        rejection_cells,
        power_cells,
    ):
        yield from kind()


def _binary(share: float, problems: int) -> Draw:
    return lambda rng: holds(share_interval((rng.random(problems) < share).astype(float)), share)


def _graded(share: float, problems: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        chances = rng.beta(2 * share, 2 * (1 - share), problems)
        return holds(share_interval(rng.binomial(64, chances) / 64), share)

    return draw


def _stratified_share(of_parts: Sequence[float], problems: int, graded: bool) -> Draw:
    parts = parts_of(problems)
    chances = np.asarray(of_parts)[parts]
    truth = float(chances.mean())

    def draw(rng: np.random.Generator) -> bool:
        if graded:
            solved = rng.binomial(64, rng.beta(2 * chances + 1e-9, 2 * (1 - chances) + 1e-9)) / 64
        else:
            solved = (rng.random(problems) < chances).astype(float)
        return holds(share_interval(solved, strata=parts.tolist()), truth)

    return draw


def _strategies(problems: int, solved: float) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        values = np.where(rng.random(problems) < solved, rng.gamma(4, 0.4, problems), 0.0)
        return holds(mean_interval(values), solved * 1.6)

    return draw


def _agreement(problems: int, groups: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        count = problems * groups
        values = np.where(rng.random(count) < 0.95, 1.0, rng.uniform(0, 1, count))
        return holds(share_interval(values, lowest=-0.5), 0.975)

    return draw


def _clustered(problems: int, groups: int) -> Draw:
    def agreements(rng: np.random.Generator, count: int) -> Float64:
        of_problems = rng.beta(2.1, 0.9, (count, 1))  # intraclass correlation of .8 with the noise below
        return np.clip(of_problems + rng.normal(0, 0.12, (count, groups)), -0.5, 1.0)

    truth = float(agreements(np.random.default_rng(0), 1_000_000 // groups).mean())
    names = np.repeat(np.arange(problems), groups).tolist()
    return lambda rng: holds(share_interval(agreements(rng, problems).ravel(), names, lowest=-0.5), truth)


SEEDS = (3, 5)
SPREADS = (0.02, 0.06, 0.12)
OVER_PROBLEMS, OVER_BOTH = 0.25, 0.1
"""Standard deviations of a problem's difference, and of what a seed adds to it at that problem."""
POWERED = (
    *((45, 1, 0.0), (64, 2, 0.06), (256, 2, 0.02), (64, 3, 0.02), (64, 3, 0.12), (256, 3, 0.06)),
    *((64, 5, 0.06), (64, 5, 0.12), (256, 5, 0.02)),
)
"""Problems, seeds and their spread, of the experiments whose power is checked."""
FAMILIES = (
    *((64, 2, 0.12), (64, 3, 0.02), (64, 3, 0.06), (64, 3, 0.12), (64, 5, 0.02), (64, 5, 0.06), (64, 5, 0.12)),
    *((256, 2, 0.06), (256, 3, 0.06), (256, 3, 0.12), (256, 5, 0.06), (256, 5, 0.12)),
)
"""The same of those with many tests."""
PART_DIFFERENCES = (-0.2, 0.3, 0.0, 0.1)
"""How the parts of the problems differ."""


def difference_cells() -> Iterator[Cell]:
    """Differences over seeds and problems, with and without an effect."""
    for effect in (0.0, 0.1):
        for problems in PROBLEMS:
            for seeds in SEEDS:
                for spread in SPREADS:
                    name = f"difference {effect:g}, {problems} problems, {seeds} seeds, spread {spread:g}"
                    yield Cell(name, _both(effect, problems, seeds, spread), low=0.92 if seeds == 3 else 0.93)
    for problems, spread, low in ((60, 0.02, 0.89), (60, 0.06, 0.89), (60, 0.12, 0.89), (256, 0.06, 0.86)):
        name = f"difference 0, {problems} problems, 2 seeds, spread {spread:g}"
        yield Cell(name, _both(0.0, problems, 2, spread), low=low)


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


def differing_part_cells() -> Iterator[Cell]:
    """Differences where the problems are drawn from parts in fixed shares, and the parts differ."""
    for problems in PROBLEMS:
        of_one = _both(0.1, problems, 1, 0.0, PART_DIFFERENCES)
        yield Cell(f"difference by parts, {problems} problems, one seed", of_one)
        for seeds in SEEDS:
            for spread in SPREADS:
                name = f"difference by parts, {problems} problems, {seeds} seeds, spread {spread:g}"
                draw = _both(0.1, problems, seeds, spread, PART_DIFFERENCES)
                yield Cell(name, draw, low=0.92 if seeds == 3 else 0.93)


def rejection_cells() -> Iterator[Cell]:
    """Tests of a true hypothesis."""
    for seeds, spread in ((3, 0.02), (5, 0.02), (5, 0.06)):
        yield Cell(f"t over both rejects, {seeds} seeds, spread {spread:g}", _rejects_both(seeds, spread), 0.04, 0.06)
    yield Cell("random signs over 64 problems reject", _rejects_signs(), 0.04, 0.06)
    yield Cell("random signs over 64 problems by parts reject", _rejects_signs(PART_DIFFERENCES), 0.04, 0.06)
    for problems, seeds, spread in FAMILIES:
        name = f"Holm: any of 12 rejected, {problems} problems, {seeds} seeds, spread {spread:g}"
        yield Cell(name, _rejects_family(problems, seeds, spread), 0.0, 0.05)


def power_cells() -> Iterator[Cell]:
    """Found differences, within three points of what `power` says."""
    for difference in (0.05, 0.1):
        for problems, seeds, spread in POWERED:
            said = power(
                difference, ExperimentSize(problems, seeds, 1), DifferenceSpread(OVER_PROBLEMS, spread, OVER_BOTH)
            )
            name = f"{difference:g}, {problems} problems, {seeds} seeds, spread {spread:g} (said {said:.2f})"
            low, high = max(0, said - 0.03), min(1, said + 0.03)
            yield Cell(f"finds {name}", _finds(difference, problems, seeds, spread), low, high)
            yield Cell(
                f"finds by parts {name}", _finds(difference, problems, seeds, spread, PART_DIFFERENCES), low, high
            )
    for seeds, spread in ((3, 0.02), (5, 0.06)):
        size, varied = ExperimentSize(64, seeds, 1, crossed=False), DifferenceSpread(OVER_PROBLEMS, spread, 0.0)
        said = power(0.1, size, varied)
        name = f"finds 0.1, own problems, 64, {seeds} seeds, spread {spread:g} (said {said:.2f})"
        yield Cell(name, _finds_own(seeds, spread), max(0, said - 0.03), min(1, said + 0.03))


def _differences(
    rng: np.random.Generator,
    effect: float,
    problems: int,
    seeds: int,
    spread: float,
    of_parts: Sequence[float] | None = None,
) -> PairedDifferences:
    """Around `effect` on average; `of_parts` are the parts' own differences, less their mean."""
    of_problems = rng.normal(effect, OVER_PROBLEMS, problems)
    strata = None
    if of_parts is not None:
        parts = parts_of(problems)
        of_problems += np.asarray(of_parts)[parts] - np.mean(np.asarray(of_parts)[parts])
        strata = (tuple(parts.tolist()),) * seeds
    table = of_problems + rng.normal(0, spread, (seeds, 1)) + rng.normal(0, OVER_BOTH, (seeds, problems))
    return PairedDifferences(tuple(table), crossed=True, strata=strata)


def _tested(differences: PairedDifferences) -> TestedDifference:
    """What may be claimed: over seeds and problems, or of one seed over problems."""
    return differences.over_both() or differences.over_problems(permutations=0)


def _both(effect: float, problems: int, seeds: int, spread: float, of_parts: Sequence[float] | None = None) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        return holds(_tested(_differences(rng, effect, problems, seeds, spread, of_parts)).interval, effect)

    return draw


def _fixed(effect: float, problems: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        shifts = rng.normal(0, 0.06, (3, 1))
        table = rng.normal(effect, OVER_PROBLEMS, problems) + shifts + rng.normal(0, OVER_BOTH, (3, problems))
        interval = PairedDifferences(tuple(table), crossed=True).over_problems(permutations=0).interval
        return holds(interval, effect + float(shifts.mean()))

    return draw


def _paired_binary(share: float, problems: int) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        easy = rng.random(problems) < 0.5  # half of the problems have the same outcome for both arms
        one, other = (rng.random((2, problems)) < share).astype(float)
        found = PairedDifferences((one - np.where(easy, one, other),), crossed=True)
        return holds(found.over_problems(permutations=0).interval, 0.0)

    return draw


def _own_differences(rng: np.random.Generator, seeds: int, spread: float) -> TestedDifference:
    rows = [rng.normal(0.1, OVER_PROBLEMS, 64) + rng.normal(0, spread) for _ in range(seeds)]
    return _tested(PairedDifferences(tuple(rows), crossed=False))


def _own(seeds: int, spread: float) -> Draw:
    return lambda rng: holds(_own_differences(rng, seeds, spread).interval, 0.1)


def _finds_own(seeds: int, spread: float) -> Draw:
    return lambda rng: _own_differences(rng, seeds, spread).interval.excludes(0.0)


def _rejects_both(seeds: int, spread: float) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        return _tested(_differences(rng, 0.0, 64, seeds, spread)).p_value < 0.05

    return draw


def _rejects_signs(of_parts: Sequence[float] | None = None) -> Draw:
    return lambda rng: _differences(rng, 0.0, 64, 1, 0.0, of_parts).over_problems(999).p_value < 0.05


def _rejects_family(problems: int, seeds: int, spread: float) -> Draw:
    """Three arms, four measures: the arms share the first one, the measures their problems. Differences spread as
    elsewhere. Holm's smallest p is the smallest times their number; `holm` itself is slow, since statsmodels collects
    garbage at each call."""

    def values(rng: np.random.Generator) -> Float64:
        parts = (OVER_PROBLEMS, (4, 1, problems)), (spread, (4, seeds, 1)), (OVER_BOTH, (4, seeds, problems))
        return sum((rng.normal(0, of_difference / math.sqrt(2), size) for of_difference, size in parts), np.zeros(()))

    def draw(rng: np.random.Generator) -> bool:
        first = values(rng)
        tables = np.concatenate([values(rng) - first for _ in range(3)])
        tested = [_tested(PairedDifferences(tuple(rows), crossed=True)) for rows in tables]
        return min(each.family_p_value for each in tested) * len(tested) < 0.05

    return draw


def _finds(
    difference: float, problems: int, seeds: int, spread: float, of_parts: Sequence[float] | None = None
) -> Draw:
    def draw(rng: np.random.Generator) -> bool:
        return _tested(_differences(rng, difference, problems, seeds, spread, of_parts)).interval.excludes(0.0)

    return draw
