"""Aggregations against worked numbers, and independence of how a step is cut into pieces."""

from typing import Any, get_args

import pytest

from raypoly.algorithms.losses.aggregation import Aggregation, Normalisers, final_factor, response_weight
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("loss_aggregation"))
@pytest.mark.parametrize("kind", get_args(Aggregation))
def test_worked_numbers(case: Any, kind: Aggregation) -> None:
    responses = case["input"]["token_losses"]
    normalisers = Normalisers(prompts=1, rollouts=len(responses), t_max=case["input"]["T_max"])
    total = sum(response_weight(kind, len(losses), normalisers) * sum(losses) for losses in responses)
    tokens = sum(len(losses) for losses in responses)
    assert total * final_factor(kind, tokens) == pytest.approx(case["expected"][kind])


def test_a_group_that_drops_out_does_not_change_the_divisor() -> None:
    planned = Normalisers(prompts=20, rollouts=8, t_max=56)
    assert response_weight("seq_mean_token_sum_norm", 10, planned) == pytest.approx(1 / (20 * 8 * 56))
