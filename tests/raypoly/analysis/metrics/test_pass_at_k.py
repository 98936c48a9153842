"""pass@k of samples and of blocks, votes, distinct strategies: worked numbers, and unbiasedness against drawing."""

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.analysis.metrics.pass_at_k import (
    MOST_VOTES,
    JudgedGroup,
    ProblemOutcome,
    Select,
    block_ks,
    block_pass_at_k,
    expected_distinct,
    ks,
    maj_at_k,
    majority,
    pass_at_k,
    summarise,
)
from raypoly.analysis.metrics.problem_counts import GroupOutcomes
from raypoly.core.values import Evidence, Verdict
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("pass_at_k"))
def test_worked_numbers(case: Any) -> None:
    for (n, c, k), value in zip(case["input"]["n_c_k"], case["expected"]["value"], strict=True):
        assert pass_at_k(n, c, k) == pytest.approx(value)


def test_expected_distinct_strategies_are_the_mean_over_all_draws() -> None:
    correct = ["for", "for", "while", "reduce"]
    samples = [*correct, "", "", ""]
    draws = list(itertools.combinations(range(7), 3))
    mean = sum(len({samples[i] for i in draw} - {""}) for draw in draws) / len(draws)
    assert expected_distinct(7, Counter(correct).values(), 3) == pytest.approx(mean)


def test_a_summary_averages_over_problems_and_says_what_was_not_measured() -> None:
    outcomes = [ProblemOutcome(8, ("for",) * 8), ProblemOutcome(8, ())]
    summary = summarise(outcomes)
    assert summary["pass_at_k"] == {"1": 0.5, "2": 0.5, "4": 0.5, "8": 0.5}
    assert summary["strategies_correct"] == pytest.approx(0.5)
    assert summary["strategies_correct_judge"] is None
    assert ks(6) == [1, 2, 4]


def test_strategies_by_judge_and_by_structure_are_measured_only_where_every_problem_was() -> None:
    judged = (JudgedGroup(8, (1, 2) * 4),)
    whole = ProblemOutcome(8, ("for",) * 8, judged, structural_strategies=(1,) * 8)
    partly = summarise([whole, ProblemOutcome(8, ("for",), (JudgedGroup(8, (1,)),))])
    assert partly["strategies_correct_judge"] == pytest.approx(1.5)
    assert summarise([whole, ProblemOutcome(8, ("for",))])["strategies_correct_judge"] is None
    assert partly["strategies_correct_structural"] is None
    assert summarise([whole])["strategies_correct_structural"] == pytest.approx(1.0)


def test_labels_of_two_of_the_judges_groups_are_never_compared() -> None:
    """Both groups have a strategy 1, which may be two: it counts in each. The last four samples are too few for eight
    draws."""
    judged = (JudgedGroup(8, (1, 1, 2)), JudgedGroup(8, (1,)), JudgedGroup(4, (1, 2, 3, 4)))
    assert summarise([ProblemOutcome(20, (), judged)])["strategies_correct_judge"] == pytest.approx((2 + 1) / 2)
    passed = [Verdict("passed", 1, 1, 0.0)] * 19
    outcome = GroupOutcomes.of([*passed, Verdict("wrong", 0, 1, 0.0)], None).outcome([1, 0] * 10, at_once=8)
    assert outcome.judged == (JudgedGroup(8, (1,) * 4), JudgedGroup(8, (1,) * 4), JudgedGroup(4, (1,) * 2))


def test_behaviours_are_counted_in_eight_draws_and_unknown_below() -> None:
    told = ProblemOutcome(16, (), behaviours=("passed",) * 8 + ("wrong-1", "wrong-2"))
    assert summarise([told])["behaviours"] == pytest.approx(2 * 0.5 + 1 - 1 / 12870)
    assert summarise([ProblemOutcome(4, (), behaviours=("passed",))])["behaviours"] is None
    assert summarise([told, ProblemOutcome(16, ())])["behaviours"] is None


def test_a_problem_that_no_program_solves_has_no_strategy_though_none_of_them_parses() -> None:
    right = Verdict("passed", 1, 1, 0.0, evidence=Evidence("", ("for",), {"for": 9.0}, "for"))
    groups = [GroupOutcomes.of([verdict] * 8, None) for verdict in (right, Verdict("error", 0, 1, 0.0))]
    summary = summarise([group.outcome(None) for group in groups])
    assert summary["strategies_correct"] == summary["strategies_correct_structural"] == pytest.approx(0.5)
    untold = GroupOutcomes.of([Verdict("passed", 1, 1, 0.0)] * 8, None)
    assert summarise([untold.outcome(None)])["strategies_correct_structural"] is None


PARTS = ((12, 5), (12, 0), (0, 1), (3, 4))
"""Attempts, and a block of which they have a part."""
SELECTS: tuple[Select, ...] = ("first", "last", "random")
PASSED = [False, True, False, False, False, False, True, True, False, False, False, True]


@pytest.mark.parametrize("case", worked_cases("pass_at_k_of_blocks", "cppo"))
def test_worked_blocks(case: Any) -> None:
    passed = list(itertools.chain(*case["input"]["outcomes"]))
    for select, values in case["expected"].items():
        for k, value in values.items():
            assert block_pass_at_k(passed, case["input"]["block"], int(k), select) == pytest.approx(value)


@pytest.mark.parametrize("select", SELECTS)
@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=1, max_size=16))
def test_blocks_of_one_are_independent_attempts(select: Select, passed: list[bool]) -> None:
    for k in range(1, len(passed) + 1):
        assert block_pass_at_k(passed, 1, k, select) == pass_at_k(len(passed), sum(passed), k)


def test_random_is_the_mean_over_all_choices_within_a_block() -> None:
    blocks = [PASSED[:6], PASSED[6:]]
    for k in range(1, 6):
        draws = [any(block[i] for i in places) for block in blocks for places in itertools.combinations(range(6), k)]
        assert block_pass_at_k(PASSED, 6, k, "random") == pytest.approx(sum(draws) / len(draws))


def test_whole_blocks_are_the_mean_over_all_draws_of_blocks() -> None:
    blocks = [PASSED[:2], PASSED[2:4], PASSED[4:6], PASSED[6:8], PASSED[8:10], PASSED[10:]]
    for count in range(1, 7):
        draws = [any(map(any, drawn)) for drawn in itertools.combinations(blocks, count)]
        for select in SELECTS:
            assert block_pass_at_k(PASSED, 2, 2 * count, select) == pytest.approx(sum(draws) / len(draws))


def test_the_order_within_a_block_counts_below_the_block_alone() -> None:
    assert block_pass_at_k([1, 0, 0, 0, 0, 1], 3, 2) == 0.5
    assert block_pass_at_k([1, 0, 0, 0, 0, 1], 3, 2, "last") == 0.5
    assert block_pass_at_k([1, 0, 0, 1, 0, 0], 3, 2, "last") == 0.0
    assert block_pass_at_k([1, 0, 0, 1, 0, 0], 3, 3, "last") == 1.0


@pytest.mark.parametrize(
    ("samples", "block", "shown"),
    [
        (20, 4, [1, 2, 4, 8, 16]),
        (4, 4, [1, 2, 4]),
        (12, 3, [1, 2, 3, 6, 12]),
        (16, 16, [1, 2, 4, 8, 16]),
        (12, 6, [1, 2, 4, 6, 12]),
    ],
)
def test_the_ks_that_are_shown(samples: int, block: int, shown: list[int]) -> None:
    assert block_ks(samples, block) == shown
    assert all(0 <= block_pass_at_k([True] * samples, block, k) <= 1 for k in shown)


def test_further_ks_are_shown_where_there_are_samples_and_whole_blocks() -> None:
    assert block_ks(24, 4, (20, 24, 3, 6, 32)) == [1, 2, 3, 4, 8, 16, 20, 24]
    assert block_ks(16, 1, (20, 24, 10)) == [1, 2, 4, 8, 10, 16]


def test_blocks_of_one_show_the_usual_ks() -> None:
    assert [block_ks(samples, 1) for samples in range(1, 70)] == [ks(samples) for samples in range(1, 70)]


@pytest.mark.parametrize("case", worked_cases("self_consistency", "cppo"))
def test_worked_votes(case: Any) -> None:
    assert majority(case["input"]["signatures"]) == case["expected"]["chosen"]


@pytest.mark.parametrize(
    ("signatures", "chosen"),
    [
        (["x", "y", "y"], 1),
        (["y", "x", "x", "y"], 0),
        ([None, "x", "y", None, "y", "x"], 1),
        (["x", None, None, None], 0),
        ([None, None], None),
        ([], None),
        (["", "", "x"], 0),
        ([(1, 2), (2, 1), (2, 1)], 1),
    ],
)
def test_the_first_of_the_largest_class(signatures: list[Any], chosen: int | None) -> None:
    assert majority(signatures) == chosen


def test_the_mean_over_all_choices_in_order() -> None:
    signatures = ["x", "y", None, "y", "z", "x", "z"]
    passed = [True, False, False, False, True, True, True]
    for k in range(1, 8):
        votes = []
        for places in itertools.combinations(range(7), k):
            chosen = majority([signatures[place] for place in places])
            votes.append(chosen is not None and passed[places[chosen]])
        assert maj_at_k(signatures, passed, k) == pytest.approx(sum(votes) / len(votes))


def test_nobody_votes_and_nothing_passes() -> None:
    assert maj_at_k([None] * 4, [True] * 4, 2) == 0.0


def test_many_sets_are_drawn_the_same_each_time_and_near_the_truth() -> None:
    """Of 24 attempts, 15 agree: 5 votes choose them where at least three of the five do, or a tie goes their way."""
    signatures = ["x"] * 15 + ["y"] * 9
    passed = [True] * 15 + [False] * 9
    sets = list(itertools.combinations(range(24), 5))
    truth = sum(sum(place < 15 for place in places) >= 3 for places in sets) / len(sets)
    assert len(sets) > MOST_VOTES
    drawn = maj_at_k(signatures, passed, 5)
    assert drawn == maj_at_k(signatures, passed, 5) == pytest.approx(truth, abs=0.01)
    assert drawn != maj_at_k(signatures, passed, 5, seed=1)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (partial(pass_at_k, 8, 2, 9), "pass@9"),
        (partial(expected_distinct, 7, [1], 8), "8 draws need at least as many samples"),
        *((partial(block_pass_at_k, PASSED, 4, k), f"pass@{k}") for k in (0, -4, 5, 6, 7, 9, 16)),
        *((partial(block_pass_at_k, [True] * n, block, 1), "whole number of blocks") for n, block in PARTS),
        *((partial(block_ks, n, block), "whole number of blocks") for n, block in PARTS),
        *((partial(maj_at_k, ["x"] * 3, [True] * n, k), f"maj@{k} needs") for n, k in ((3, 0), (3, 4), (2, 1))),
    ],
)
def test_what_cannot_be_counted_is_refused(count: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        count()
