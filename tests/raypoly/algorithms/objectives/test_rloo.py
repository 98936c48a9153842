"""RLOO against worked numbers and against its definition."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build
from raypoly.core.errors import UsageError
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("grpo_drgrpo_rloo"))
def test_worked_numbers(case: Any) -> None:
    got = build("rloo").advantages(rewards=case["input"]["rewards"])
    np.testing.assert_allclose(got, case["expected"]["rloo"], atol=1e-9)


@settings(max_examples=50)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12))
def test_a_rollout_is_compared_with_the_others_alone(rewards: list[float]) -> None:
    got = build("rloo").advantages(rewards=rewards)
    want = [r - np.mean(rewards[:i] + rewards[i + 1 :]) for i, r in enumerate(rewards)]
    np.testing.assert_allclose(got, want, atol=1e-12)
    assert got.sum() == pytest.approx(0, abs=1e-12)


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"train\.rollouts=1 must be 2 or more"):
        build("rloo").check(1)
