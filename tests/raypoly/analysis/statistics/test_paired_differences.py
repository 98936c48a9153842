"""Differences over problems and seeds, tests of them, and Holm's adjustment."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from raypoly.analysis.statistics.paired_differences import PairedDifferences, holm, signs_test

RNG = np.random.default_rng(0)
TABLE = RNG.normal(0.2, 0.3, 20) + RNG.normal(0, 0.1, (3, 20))


def test_over_problems_is_student_s_paired_t_of_the_seeds_mean() -> None:
    found = PairedDifferences(tuple(TABLE), crossed=True)
    means = TABLE.mean(0)
    low, high = stats.t.interval(0.95, 19, means.mean(), stats.sem(means))
    tested = found.over_problems()
    assert found.mean == pytest.approx(means.mean())
    assert (tested.interval.low, tested.interval.high) == pytest.approx((low, high))
    assert found.over_problems(permutations=0).p_value == pytest.approx(stats.ttest_1samp(means, 0).pvalue)
    assert tested.p_value == pytest.approx(found.over_problems(permutations=0).p_value, abs=0.01)


def test_over_both_adds_the_seeds_part_with_satterthwaite_s_degrees_of_freedom() -> None:
    found = PairedDifferences(tuple(TABLE), crossed=True)
    tested = found.over_both()
    assert tested is not None
    problems, seeds = np.var(TABLE.mean(0), ddof=1) / 20, np.var(TABLE.mean(1), ddof=1) / 3
    df = (problems + seeds) ** 2 / (problems**2 / 19 + seeds**2 / 2)
    reach = stats.t.ppf(0.975, df) * np.sqrt(problems + seeds)
    assert tested.df == pytest.approx(df)
    assert (tested.interval.low, tested.interval.high) == pytest.approx((found.mean - reach, found.mean + reach))
    assert tested.p_value == pytest.approx(2 * stats.t.sf(found.mean / np.sqrt(problems + seeds), df))
    assert found.seed_spread == pytest.approx(np.std(TABLE.mean(1), ddof=1))


def test_a_p_for_many_tests_is_behrens_and_fisher_s() -> None:
    """By drawing what the two variances may be, with a t for the problems' in place of a normal."""
    table = TABLE - TABLE.mean() + 0.35
    tested = PairedDifferences(tuple(table), crossed=True).over_both()
    assert tested is not None
    problems, seeds = np.var(table.mean(0), ddof=1) / 20, np.var(table.mean(1), ddof=1) / 3
    rng = np.random.default_rng(1)
    drawn = rng.standard_t(2, 2_000_000) * np.sqrt(seeds) + rng.standard_t(19, 2_000_000) * np.sqrt(problems)
    assert tested.family_p_value == pytest.approx(np.mean(abs(drawn) > 0.35), rel=0.06)
    assert tested.family_p_value > 2 * tested.p_value
    for other in (PairedDifferences(tuple(table), crossed=False), PairedDifferences((table[0],), crossed=True)):
        same = other.over_both() or other.over_problems()
        assert same.family_p_value == same.p_value, "one variance is estimated"


def test_an_interval_leaves_out_0_just_where_its_p_is_below_05() -> None:
    for shift in np.linspace(-0.4, 0.2, 61):
        tested = PairedDifferences(tuple(TABLE + shift), crossed=True).over_both()
        assert tested is not None
        assert tested.interval.excludes(0.0) == (tested.p_value < 0.05)


def test_one_seed_says_nothing_of_others() -> None:
    found = PairedDifferences((TABLE[0],), crossed=True)
    assert found.over_both() is None
    assert found.seed_spread is None


def test_problems_of_a_seed_s_own_are_in_the_seeds_spread() -> None:
    rows = (TABLE[0][:12], TABLE[1][:15], TABLE[2])
    found = PairedDifferences(rows, crossed=False).over_both()
    assert found is not None
    means = [row.mean() for row in rows]
    low, high = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))


def test_runs_of_other_problems_are_no_pair() -> None:
    with pytest.raises(ValueError, match="the same problems, not 2 and 3"):
        PairedDifferences.of([[1, 2]], [[1, 2, 3]])
    with pytest.raises(ValueError, match="equally many"):
        PairedDifferences.of([[1, 2], [1]], [[1, 1], [1]])


def test_random_signs_agree_with_the_interval_where_the_parts_of_the_problems_differ() -> None:
    """Two budgets gain .4 and lose .2, each by nearly the same: the mean of +.1 is certain for other such problems."""
    values = np.concatenate([RNG.normal(0.4, 0.1, 32), RNG.normal(-0.2, 0.1, 32)])
    strata = [["time"] * 32 + ["memory"] * 32]
    within = PairedDifferences.of([values], [np.zeros(64)], strata=strata).over_problems()
    assert within.interval.low > 0.05
    assert within.p_value == 2 / 10_000, "none of the patterns that were drawn lies as far out"
    blurred = PairedDifferences.of([values], [np.zeros(64)]).over_problems()
    assert blurred.p_value == pytest.approx(PairedDifferences((values,), True).over_problems(0).p_value, abs=0.01)
    own = PairedDifferences.of([values] * 2, [np.zeros(64)] * 2, crossed=False, strata=strata * 2).over_problems()
    assert own.p_value == 2 / 10_000


def test_seeds_are_fixed_in_the_test_as_in_the_interval_where_they_have_problems_of_their_own() -> None:
    """One seed gains .4 and one loses .2, each by nearly the same at all of its problems."""
    rows = (RNG.normal(0.4, 0.1, 32), RNG.normal(-0.2, 0.1, 32))
    found = PairedDifferences(rows, crossed=False).over_problems()
    assert found.interval.low > 0.05
    assert found.p_value == 2 / 10_000


def test_a_part_of_one_problem_breaks_no_test() -> None:
    """Its sum may cancel that of a part whose problems are alike: then there is no spread and no difference."""
    found = PairedDifferences((np.array([0.5, -0.25, -0.25]),), crossed=True, strata=(("a", "b", "b"),))
    assert found.over_problems().p_value == 1.0


def test_problems_that_never_differ_show_no_difference_and_no_certainty() -> None:
    tested = PairedDifferences((np.zeros(64),), crossed=True).over_problems()
    assert tested.p_value == 1.0
    assert tested.interval.low < 0 < tested.interval.high


@pytest.mark.parametrize(
    ("theirs", "strata", "below"),
    [([0.0] * 40, None, 1 - 2 / 41), ([1.0] * 20 + [0.0] * 20, ["flat"] * 20 + ["time"] * 20, 0.5 - 2 / 41)],
)
def test_the_same_difference_at_each_problem_or_each_of_a_part_is_no_certainty(
    theirs: list[float], strata: list[str] | None, below: float
) -> None:
    """One arm solves what the other does, and one budget more: another problem of a budget may differ."""
    parts = None if strata is None else [strata] * 2
    found = PairedDifferences.of([[1.0] * 40] * 2, [theirs] * 2, strata=parts)
    for each in (found.over_problems(), found.over_both()):
        assert each is not None
        assert each.interval.low < below
        assert each.p_value > 0


@pytest.mark.parametrize(
    ("mine", "crossed", "strata"),
    [
        ([[0.0, 0.0]] * 2, True, [["a", "b"]] * 2),
        ([[1.0, 1.0]] * 2, False, [["a", "b"]] * 2),
        ([[1.0]] * 2, False, None),
    ],
)
def test_problems_that_are_each_alone_in_their_part_are_no_certainty(
    mine: list[list[float]], crossed: bool, strata: list[list[str]] | None
) -> None:
    theirs = [[0.0] * len(row) for row in mine]
    tested = PairedDifferences.of(mine, theirs, crossed=crossed, strata=strata).over_both()
    assert tested is not None
    assert tested.interval.low < tested.interval.mean < tested.interval.high
    assert tested.p_value > 0


def test_seeds_that_agree_on_problems_of_their_own_say_no_more_of_others_than_of_themselves() -> None:
    found = PairedDifferences.of([[1.0] * 64] * 3, [[1.0] * 64] * 3, crossed=False)
    these, all_seeds = found.over_problems(), found.over_both()
    assert all_seeds is not None
    assert 0 < these.interval.high < all_seeds.interval.high < 0.05


def test_one_problem_says_nothing_of_others_however_many_seeds_have_it() -> None:
    assert PairedDifferences.of([[0.5]] * 3, [[0.1]] * 3).over_both() is None


def test_few_differences_are_tested_against_every_pattern_of_signs() -> None:
    changes = np.array([0.5, -0.3, 0.1, 0.0, 0.45])
    kept = changes[changes != 0]
    far = [abs(np.dot(signs, kept)) >= abs(kept.sum()) - 1e-12 for signs in product((1, -1), repeat=4)]
    assert (signs_test(changes).p_value, signs_test(changes).exact) == (np.mean(far), True)


def test_differences_of_one_problem_have_one_sign() -> None:
    assert signs_test([0.1] * 12, clusters=["a"] * 6 + ["b"] * 6).p_value == 2 / 2**2
    assert signs_test([0.1] * 12).p_value == 2 / 2**12
    assert signs_test([0.3, 0.0]).p_value == 1.0


def test_many_differences_are_tested_by_drawing_close_to_the_exact_value() -> None:
    changes = np.random.default_rng(5).normal(0.25, 1.0, 18)
    bits = np.arange(1 << 18)[:, None] >> np.arange(18) & 1
    exact = np.mean(np.abs((bits * 2 - 1) @ changes) >= abs(changes.sum()) - 1e-12)
    found = signs_test(changes)
    assert not found.exact
    assert found.p_value == pytest.approx(exact, abs=0.02)
    assert found == signs_test(changes), "by a fixed seed"
    assert 0 < signs_test([1.0] * 40).p_value < 1e-3


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_keeps_the_order() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({}) == {}


def test_thousands_of_units_can_be_tested() -> None:
    found = signs_test(np.random.default_rng(0).normal(0.05, 0.3, 3_000), permutations=99)
    assert found.p_value == pytest.approx(2 / 100)
    assert not found.exact
