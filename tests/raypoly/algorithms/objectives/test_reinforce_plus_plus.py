"""REINFORCE++ whitens over the tokens of the whole step."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import Batch, build
from raypoly.core.values import Float64
from tests.support.worked_numbers import worked_cases


def finished(baseline: str, rewards: list[list[float]], lengths: list[list[int]]) -> list[Float64]:
    """A step's groups, from rewards to final advantages."""
    objective = build("reinforce_plus_plus", baseline=baseline)
    return objective.finish(Batch.of([objective.advantages(rewards=group) for group in rewards], lengths))


@pytest.mark.parametrize("case", worked_cases("reinforce_plus_plus"))
def test_worked_numbers(case: Any) -> None:
    rewards, lengths = np.array(case["input"]["rewards"]), np.array(case["input"]["lengths"])
    groups = np.array(case["input"].get("groups", [0] * len(rewards)))
    of = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    baseline = "group" if "groups" in case["input"] else "none"
    got = finished(baseline, [rewards[i].tolist() for i in of], [lengths[i].tolist() for i in of])
    np.testing.assert_allclose(np.concatenate(got), case["expected"]["per_sequence_advantage"], atol=1e-9)


def test_a_long_response_counts_once_a_token() -> None:
    by_token = [1.0] * 6 + [0.0] * 2  # what two responses of 6 and 2 tokens give, each token by itself
    want = (np.array([1.0, 0.0]) - np.mean(by_token)) / np.sqrt(np.var(by_token, ddof=1) + 1e-8)
    np.testing.assert_allclose(finished("none", [[1.0], [0.0]], [[6], [2]]), want[:, None], atol=1e-12)


groups = st.lists(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 50)), min_size=1, max_size=6), min_size=1, max_size=5
)


@settings(max_examples=60)
@given(groups, st.sampled_from(["none", "group"]))
def test_tokens_of_a_step_have_mean_zero_and_variance_one(step: list[list[tuple[int, int]]], baseline: str) -> None:
    rewards = [[float(reward) for reward, _ in group] for group in step]
    lengths = [[length for _, length in group] for group in step]
    got = finished(baseline, rewards, lengths)
    assert [len(group) for group in got] == [len(group) for group in step]
    tokens = np.repeat(np.concatenate(got), np.concatenate(lengths))
    assert tokens.mean() == pytest.approx(0, abs=1e-9)
    if tokens.any():
        assert np.var(tokens, ddof=1) == pytest.approx(1, rel=1e-4)


def test_a_step_of_equal_rewards_has_no_gradient() -> None:
    assert not np.any(finished("none", [[1.0, 1.0], [1.0, 1.0]], [[3, 4], [5, 6]]))
    assert not np.any(finished("group", [[1.0, 1.0], [0.0, 0.0]], [[3, 4], [5, 6]]))
    assert not np.any(finished("none", [[1.0]], [[1]]))


def test_a_step_without_sound_groups_has_nothing_to_whiten() -> None:
    assert finished("none", [], []) == []
