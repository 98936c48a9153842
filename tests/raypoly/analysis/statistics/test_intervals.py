"""Intervals: worked values, and what has to hold for any sample. `test_coverage` says how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from raypoly.analysis.statistics.intervals import mean_interval, sampled_mean, share_interval


def test_a_mean_s_interval_is_student_s() -> None:
    found = mean_interval([11.0, 12.0, 16.0])
    reach = stats.t.ppf(0.975, 2) * np.std([11, 12, 16], ddof=1) / math.sqrt(3)
    assert (found.mean, found.count) == (13.0, 3)
    assert (found.low, found.high) == pytest.approx((13 - reach, 13 + reach))
    assert found.excludes(found.high + 0.01)
    assert not found.excludes(13.0)
    assert mean_interval([1.0, 2.0, 6.0]).low == 0.0, "none is below 0"


def test_values_that_are_all_alike_are_no_certainty() -> None:
    """Each problem of 12 has the same: others may not; nor do five seeds that have these problems make more of them."""
    floor = stats.t.ppf(0.975, 11) / 13
    assert mean_interval([1.0] * 12).high - 1 == pytest.approx(floor)
    assert mean_interval([1.0] * 60, clusters=[*range(12)] * 5).high - 1 == pytest.approx(floor)


def test_where_hardly_any_problem_is_solved_the_mean_s_interval_is_no_narrower_than_a_share_s() -> None:
    for values in ([0.0] * 64, [0.0] * 62 + [1.0] * 2):
        found, share = mean_interval(values), share_interval(values)
        assert found.low == 0.0
        assert found.high >= share.high
    assert mean_interval([0.0] * 62 + [2.0] * 2).high >= 2 * share_interval([0.0] * 62 + [1.0] * 2).high


def test_one_value_says_nothing_of_others() -> None:
    assert (mean_interval([2.0]).low, mean_interval([2.0]).high) == (-math.inf, math.inf)
    assert (share_interval([0.4]).low, share_interval([0.4]).high) == (0.0, 1.0)
    with pytest.raises(ValueError, match="one value at least"):
        share_interval([])


def test_solved_or_not_is_wilson_s_interval_with_student_s_quantile() -> None:
    found = share_interval([1.0] * 45 + [0.0] * 19)
    t, share = stats.t.ppf(0.975, 63), 45 / 64
    n = 63.0  # p (1 - p) over its estimated variance
    centre, reach = (
        (share + t * t / (2 * n)) / (1 + t * t / n),
        t / (1 + t * t / n) * math.sqrt(share * (1 - share) / n + (t / (2 * n)) ** 2),
    )
    assert (found.low, found.high) == pytest.approx((centre - reach, centre + reach))
    assert found.low == pytest.approx(0.58, abs=0.005)
    assert found.high == pytest.approx(0.80, abs=0.005)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_share_at_its_bound_has_an_interval_that_stays_within(value: float) -> None:
    found = share_interval([value] * 64)
    assert found.mean == value
    assert 0 <= found.low < found.high <= 1
    assert 0.04 < found.high - found.low < 0.08


def test_values_between_the_bounds_count_more_than_solved_or_not() -> None:
    rng = np.random.default_rng(0)
    graded = rng.uniform(0.4, 0.6, 64)
    found, whole = share_interval(graded), share_interval((rng.random(64) < 0.5).astype(float))
    assert found.high - found.low < (whole.high - whole.low) / 4


def test_several_values_of_a_problem_count_as_one() -> None:
    values, names = [0.0, 1.0, 1.0, 0.0, 1.0], ["a", "b", "c", "d", "e"]
    once = share_interval(values)
    many = share_interval(values * 8, clusters=names * 8)
    assert (many.low, many.high, many.count) == pytest.approx((once.low, once.high, 5))
    assert share_interval(values * 8).low > many.low, "as if they were 40 problems"


def test_problems_in_fixed_shares_vary_within_their_part_alone() -> None:
    values, parts = [1.0] * 30 + [0.0] * 10 + [0.5] * 2, ["easy"] * 30 + ["hard"] * 10 + ["odd", "odder"]
    assert sampled_mean(values, strata=parts).variance == pytest.approx(0.0)
    mixed = sampled_mean([1.0, 0.0] * 20, strata=["a", "a", "b", "b"] * 10)
    assert mixed.df == 38
    assert mixed.variance == pytest.approx(0.25 / 40 * 20 / 19)


def test_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, not at 1\.2"):
        share_interval([0.1, 1.2])
    assert share_interval([-0.5, 1.0], lowest=-0.5).mean == pytest.approx(0.25)
