"""pass@k and distinct strategies: worked numbers, and unbiasedness against drawing."""

import itertools
from typing import Any

import pytest

from raypoly.analysis.metrics.group_outcomes import GroupOutcomes
from raypoly.analysis.metrics.pass_at_k import (
    JudgedGroup,
    ProblemOutcome,
    expected_strategies,
    ks,
    pass_at_k,
    summarise,
)
from raypoly.core.values import Evidence, Verdict
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("pass_at_k"))
def test_worked_numbers(case: Any) -> None:
    for (n, c, k), value in zip(case["input"]["n_c_k"], case["expected"]["value"], strict=True):
        assert pass_at_k(n, c, k) == pytest.approx(value)


def test_more_draws_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="pass@9"):
        pass_at_k(8, 2, 9)


def test_expected_strategies_is_the_mean_over_all_draws() -> None:
    correct = ["for", "for", "while", "reduce"]
    samples = [*correct, "", "", ""]
    draws = list(itertools.combinations(range(7), 3))
    mean = sum(len({samples[i] for i in draw} - {""}) for draw in draws) / len(draws)
    assert expected_strategies(7, correct, 3) == pytest.approx(mean)


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
