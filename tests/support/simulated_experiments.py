"""Experiments made of random numbers, whose truth is known: how often an interval holds it, how often a test rejects.

for cell in all_cells(): cell.measured(experiments=2000, rng).ok
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from raypoly.analysis.statistics.intervals import mean_interval, share_interval
from raypoly.core.values import Float64
from tests.support.simulated_cell import PROBLEMS, SHARES, Cell, Draw, holds, parts_of
from tests.support.simulated_differences import (
    difference_cells,
    differing_part_cells,
    fixed_seed_cells,
    own_problem_cells,
    power_cells,
    rejection_cells,
)

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
