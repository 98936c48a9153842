"""GFPO learns from the kept rollouts alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build
from raypoly.core.errors import UsageError
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("gfpo"))
@pytest.mark.parametrize(
    ("metric", "key"), [("shortest", "adv_shortest_pop_std"), ("reward_per_token", "adv_rpt_pop_std")]
)
def test_worked_numbers(case: Any, metric: str, key: str) -> None:
    if key not in case["expected"]:
        pytest.skip("this case has no such number")
    given_ = case["input"]
    got = build("gfpo", keep=given_["k"], metric=metric).advantages(
        rewards=given_["rewards"], lengths=given_["lengths"]
    )
    np.testing.assert_allclose(got, case["expected"][key], atol=1e-9)


def test_the_long_right_answer_is_left_out() -> None:
    got = build("gfpo", keep=3).advantages(rewards=[1, 1, 0, 0], lengths=[9, 40, 7, 8])
    np.testing.assert_allclose(got, [np.sqrt(2), 0, -np.sqrt(0.5), -np.sqrt(0.5)], atol=1e-12)


def test_of_equal_worth_the_shorter_is_kept() -> None:
    got = build("gfpo", keep=2, metric="reward_per_token").advantages(rewards=[1, 0, 0, 0], lengths=[5, 9, 3, 9])
    np.testing.assert_allclose(got, [1, 0, -1, 0], atol=1e-12)


rollouts = st.tuples(st.integers(0, 1), st.integers(1, 9999))


@settings(max_examples=60)
@given(
    st.lists(rollouts, min_size=4, max_size=9, unique_by=lambda pair: pair[1]),
    st.sampled_from(["shortest", "reward_per_token"]),
    st.randoms(use_true_random=False),
)
def test_order_means_nothing_and_the_mean_is_zero(group: list[tuple[int, int]], metric: str, random: Any) -> None:
    rewards, lengths = np.array(group).T
    objective = build("gfpo", keep=4, metric=metric)
    got = objective.advantages(rewards=rewards, lengths=lengths)
    order = random.sample(range(len(group)), len(group))
    np.testing.assert_allclose(
        objective.advantages(rewards=rewards[order], lengths=lengths[order]), got[order], atol=1e-12
    )
    assert got.sum() == pytest.approx(0, abs=1e-9)
    assert np.count_nonzero(got) <= 4


def test_equal_rewards_among_the_kept_have_no_advantage() -> None:
    assert not build("gfpo", keep=2).advantages(rewards=[0, 0, 1], lengths=[1, 2, 3]).any()


def test_keeping_more_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match=r"objective\.keep=9 must be at most train\.rollouts"):
        build("gfpo", keep=9).check(8)


def test_lengths_must_be_given_for_each_rollout() -> None:
    with pytest.raises(ValueError, match="needs lengths, and got none"):
        build("gfpo").advantages(rewards=[1, 0, 1, 0])
    with pytest.raises(ValueError, match="4 rewards need 4 lengths"):
        build("gfpo").advantages(rewards=[1, 0, 1, 0], lengths=[1, 2, 3])
