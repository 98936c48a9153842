"""pass@k and distinct strategies: worked numbers, and unbiasedness against drawing."""

import itertools
from typing import Any

import pytest

from raypoly.metrics.group_outcomes import GroupOutcomes
from raypoly.metrics.pass_at_k import ProblemOutcome, expected_strategies, ks, pass_at_k, summarise
from raypoly.values import Evidence, Verdict
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
    whole = ProblemOutcome(8, ("for",) * 8, judged_strategies=(1, 2) * 4, structural_strategies=(1,) * 8)
    partly = summarise([whole, ProblemOutcome(8, ("for",), judged_strategies=(1,))])
    assert partly["strategies_correct_judge"] == pytest.approx(1.5)
    assert partly["strategies_correct_structural"] is None
    assert summarise([whole])["strategies_correct_structural"] == pytest.approx(1.0)


def test_a_problem_that_no_program_solves_has_no_strategy_though_none_of_them_parses() -> None:
    right = Verdict("passed", 1, 1, 0.0, evidence=Evidence("", ("for",), {"for": 9.0}, "for"))
    groups = [GroupOutcomes.of([verdict] * 8, None) for verdict in (right, Verdict("error", 0, 1, 0.0))]
    summary = summarise([group.outcome(None) for group in groups])
    assert summary["strategies_correct"] == summary["strategies_correct_structural"] == pytest.approx(0.5)
    untold = GroupOutcomes.of([Verdict("passed", 1, 1, 0.0)] * 8, None)
    assert summarise([untold.outcome(None)])["strategies_correct_structural"] is None
