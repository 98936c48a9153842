"""What an experiment can find."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from raypoly.analysis.statistics.paired_differences import PairedDifferences
from raypoly.analysis.statistics.power import (
    TYPICAL,
    DifferenceSpread,
    ExperimentSize,
    fewest,
    power,
    smallest_difference,
)


def test_no_difference_is_found_as_often_as_the_level_says() -> None:
    assert power(0.0, ExperimentSize(64, 1, 1), TYPICAL) == pytest.approx(0.05, abs=1e-4)


def test_one_seed_s_smallest_difference_is_that_of_a_t_test() -> None:
    """Some 2.8 standard errors; Cohen's table for a t test has 80 % at n = 64, d = .356."""
    spread = DifferenceSpread(problems=0.32, seeds=0.0, rest=0.0)
    found = smallest_difference(ExperimentSize(64, 1, 1), spread)
    assert found == pytest.approx(0.356 * 0.32, rel=0.01)
    assert power(found, ExperimentSize(64, 1, 1), spread) == pytest.approx(0.8, abs=0.002)


def test_the_fewest_problems_and_seeds_are_enough_and_one_less_is_not() -> None:
    spread = DifferenceSpread(problems=0.3, seeds=0.02, rest=0.1)
    problems = fewest(0.1, "problems", ExperimentSize(64, 5, 1), spread)
    assert problems is not None
    assert (
        power(0.1, ExperimentSize(problems, 5, 1), spread)
        >= 0.8
        > power(0.1, ExperimentSize(problems - 1, 5, 1), spread)
    )
    seeds = fewest(0.2, "seeds", ExperimentSize(64, 5, 1), DifferenceSpread(0.1, 0.3, 0.0))
    assert seeds is not None
    assert seeds > 10
    assert fewest(0.02, "problems", ExperimentSize(64, 3, 1), spread) is None, (
        "seeds differ, however many problems there are"
    )
    assert fewest(0.02, "seeds", ExperimentSize(64, 3, 1), spread) is None


def test_more_samples_find_more_until_problems_and_seeds_are_all_that_spreads() -> None:
    spread = DifferenceSpread(problems=0.2, seeds=0.0, rest=0.0, samples=2.0)
    size = ExperimentSize(64, 3, 16)
    samples = fewest(0.12, "samples", size, spread)
    assert samples is not None
    assert power(0.12, replace(size, samples=samples), spread) >= 0.8
    assert power(0.12, replace(size, samples=samples - 1), spread) < 0.8
    assert fewest(0.05, "samples", size, spread) is None, "problems differ, however many samples there are"


def test_a_pilot_s_spread_is_told_apart() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(0, 0.3, 4_000) + rng.normal(0, 0.5, (40, 1)) + rng.normal(0, 0.2, (40, 4_000))
    found = DifferenceSpread.of(PairedDifferences(tuple(table), crossed=True))
    assert found.problems == pytest.approx(0.3, rel=0.05)
    assert found.seeds == pytest.approx(0.5, rel=0.25)
    assert found.rest == pytest.approx(0.2, rel=0.05)
    one = DifferenceSpread.of(PairedDifferences((table[0],), crossed=True))
    assert one.problems == pytest.approx(math.hypot(0.3, 0.2), rel=0.05)
    assert one.seeds == TYPICAL.seeds


def test_seeds_with_problems_of_their_own_find_what_their_t_test_finds() -> None:
    """Cohen's table for a t test: 80 % at n = 10 with d = 1.0."""
    spread = DifferenceSpread(problems=0.3, seeds=0.04, rest=0.0)
    of_a_seed = math.hypot(0.3 / 8, 0.04)
    found = smallest_difference(ExperimentSize(64, 10, 1, crossed=False), spread)
    assert found == pytest.approx(1.0 * of_a_seed, rel=0.01)


def test_a_pilot_of_own_problems_tells_seeds_from_problems() -> None:
    rng = np.random.default_rng(0)
    rows = tuple(rng.normal(rng.normal(0, 0.2), 0.3, 1_000) for _ in range(60))
    found = DifferenceSpread.of(PairedDifferences(rows, crossed=False))
    assert found.problems == pytest.approx(0.3, rel=0.05)
    assert found.seeds == pytest.approx(0.2, rel=0.25)


def test_a_pilot_s_spread_is_that_within_its_strata() -> None:
    """Problems are drawn in fixed shares of each, so how far the strata lie apart does not blur a difference."""
    rng = np.random.default_rng(0)
    table = rng.normal(0, 0.3, 4_000) + np.repeat([-0.5, 0.5], 2_000) + rng.normal(0, 0.2, (2, 4_000))
    strata = (("flat",) * 2_000 + ("time",) * 2_000,) * 2
    found = DifferenceSpread.of(PairedDifferences(tuple(table), crossed=True, strata=strata))
    assert found.problems == pytest.approx(0.3, rel=0.05)
    one = DifferenceSpread.of(PairedDifferences((table[0],), crossed=True, strata=strata[:1]))
    assert one.problems == pytest.approx(math.hypot(0.3, 0.2), rel=0.05)
