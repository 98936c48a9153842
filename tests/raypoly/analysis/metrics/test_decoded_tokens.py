"""Decoded tokens by role, and pass@k for 10,000 of them."""

import itertools
from typing import Any

import pytest

from raypoly.analysis.metrics.decoded_tokens import DecodedTokens, mean_by_role, pass_per_10k
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("decoded_tokens", "cppo"))
def test_worked_numbers(case: Any) -> None:
    given, expected = case["input"], case["expected"]
    problems = [
        DecodedTokens.of([*(("plan", each) for each in plans), *(("solve", each) for each in attempts)])
        for plans, attempts in zip(given["plan_tokens"], given["attempt_tokens"], strict=True)
    ]
    totals = [problem.total for problem in problems]
    assert totals == expected["per_problem"]
    assert pass_per_10k(given["pass_at_4"], totals) == pytest.approx(expected["pass_per_10k"])


def test_the_studys_table_of_tokens() -> None:
    """Rows of table 18: pass@4, and decoded tokens a problem."""
    for passed, tokens, published in [(0.515, 6086.8, 0.846), (0.794, 4727.8, 1.679), (0.535, 1556.0, 3.438)]:
        assert pass_per_10k([passed], [tokens]) == pytest.approx(published, abs=5e-4)


def test_means_are_over_all_problems() -> None:
    problems = [DecodedTokens.of([("plan", 100), ("solve", 10)]), DecodedTokens.of([("solve", 30), ("solve", 0)])]
    assert mean_by_role(problems) == {"plan": 50.0, "solve": 20.0}
    assert mean_by_role([]) == {}


def test_pass_by_tokens_is_a_ratio_of_means() -> None:
    assert pass_per_10k([1.0, 0.0], [1_000, 9_000]) == pytest.approx(1.0)
    assert pass_per_10k([1.0], [0]) is pass_per_10k([], []) is None, "nothing was decoded"
    with pytest.raises(ValueError, match="pass@k and tokens"):
        pass_per_10k([1.0, 0.0], [1_000])


def test_all_attempts_cost_all_tokens() -> None:
    tokens = DecodedTokens.of([("observe", 7), ("plan", 40), *(("solve", each) for each in (5, 6, 7, 8))])
    assert [tokens.expected(4, 4, block) for block in (1, 2, 4)] == [73.0] * 3


def test_the_mean_over_all_choices_of_k_attempts_each_behind_its_own_draft() -> None:
    tries, attempts = [3, 8, 1, 0], [20, 10, 40, 5]
    tokens = DecodedTokens.of([*(("try", each) for each in tries), *(("solve", each) for each in attempts)])
    for k in range(1, 5):
        costs = [sum(tries[i] + attempts[i] for i in places) for places in itertools.combinations(range(4), k)]
        assert tokens.expected(k, 4) == pytest.approx(sum(costs) / len(costs))


def test_a_plan_is_paid_whole_below_its_block() -> None:
    tokens = DecodedTokens.of([("plan", 100), ("plan", 60), *[("solve", 10)] * 8])
    assert [tokens.expected(k, 8, 4) for k in (1, 2, 4, 8)] == [90.0, 100.0, 120.0, 240.0]


@pytest.mark.parametrize("k", [0, 5])
def test_more_attempts_than_there_are_cost_nothing_that_is_known(k: int) -> None:
    with pytest.raises(ValueError, match=f"the tokens of {k} attempts"):
        DecodedTokens.of([("solve", 5)] * 4).expected(k, 4)
