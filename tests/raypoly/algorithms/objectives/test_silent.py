"""Which groups teach nothing: those whose exact advantages are all zero, whatever rounding leaves of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.set_functions import SetConfig, SetObjective, Sets
from raypoly.core.values import Float64
from tests.raypoly.algorithms.objectives.exact_poly_epo import Group, conditional_means, groups, parameters


class MeanReward(SetObjective):
    def score(self, sets: Sets) -> Float64:
        return sets.rewards_Kn.mean(axis=1)


@settings(max_examples=120)
@given(groups(), st.sampled_from(["sum", "mean", "unit"]))
def test_poly_epos_silence_is_that_of_exact_rationals(group: Group, reduction: str) -> None:
    rewards, labels, *_ = group
    objective = build("poly_epo", reduction=reduction, **parameters(group))
    numbers = np.array([float(reward) for reward in rewards])
    exact = not any(conditional_means(group))
    assert objective.silent(numbers, objective.advantages(rewards=numbers, labels=labels)) is exact


def test_what_rounding_leaves_is_no_gradient() -> None:
    objective = build("poly_epo", set_size=3, require_two=False)
    rewards = np.full(5, 1 / 3)
    left = objective.advantages(rewards=rewards, labels=[1] * 5)
    assert left.any()
    assert objective.silent(rewards, left)
    rewards[0] = 0.34
    assert not objective.silent(rewards, objective.advantages(rewards=rewards, labels=[1] * 5))


@pytest.mark.parametrize("name", ["grpo", "rloo", "darling", "grpo_diversity", "passk_training", "uniqueness_aware"])
@pytest.mark.parametrize("reward", [0.0, 0.1, 1 / 3, 1.0, 100.7])
@pytest.mark.parametrize("size", [6, 7, 12])
def test_equal_rewards_teach_nothing_however_they_are_rounded(name: str, reward: float, size: int) -> None:
    params = {"std": "sample"} if name == "grpo" else {}
    objective = build(name, **params)
    rewards, labels = np.full(size, reward), [1] * size
    given_ = {"labels": labels} if "labels" in objective.needs else {}
    assert objective.silent(rewards, objective.advantages(rewards=rewards, **given_))
    rewards[0] += 0.01
    if name != "darling":  # in one strategy it pays nobody
        assert not objective.silent(rewards, objective.advantages(rewards=rewards, **given_))


@pytest.mark.parametrize("reduction", ["sum", "mean", "unit"])
@pytest.mark.parametrize("sets", [None, 50])
def test_a_set_objective_knows_its_scale(reduction: str, sets: int | None) -> None:
    objective = MeanReward(SetConfig(set_size=4, reduction=reduction, sets=sets))
    equal, mixed = np.full(12, 0.1), np.linspace(0, 1, 12)
    assert objective.silent(equal, objective.advantages(rewards=equal))
    assert not objective.silent(mixed, objective.advantages(rewards=mixed))
    assert objective.scale(12) == (1.0 if reduction != "sum" else pytest.approx((sets or 495) * 4 / 12))


def test_a_sum_over_many_sets_is_judged_by_their_number() -> None:
    """Of 10^25 sets rounding leaves a large number, which is nothing."""
    objective = build("poly_epo", set_size=16, require_two=False)
    rewards, labels = np.full(256, 0.1), np.ones(256, dtype=np.int32)
    left = objective.advantages(rewards=rewards, labels=labels)
    assert np.abs(left).max() > 1e3
    assert objective.silent(rewards, left)
    rewards[0] = 0.2
    assert not objective.silent(rewards, objective.advantages(rewards=rewards, labels=labels))
