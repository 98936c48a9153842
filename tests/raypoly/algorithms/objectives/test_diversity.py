"""DARLING, uniqueness-aware RL and GRPO + diversity: worked numbers, and what holds for any group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.darling import share_elsewhere
from raypoly.algorithms.objectives.uniqueness_aware import cluster_sizes
from tests.raypoly.algorithms.objectives.judged_groups import Judged, judged
from tests.support.worked_numbers import worked_cases

NAMES = [
    ("darling", {}),
    ("darling", {"floor": 0.1, "partition": "correct"}),
    ("uniqueness_aware", {}),
    ("uniqueness_aware", {"apply_to": "positive", "alpha": 0.5}),
    ("grpo_diversity", {}),
    ("grpo_diversity", {"std": "sample"}),
    ("strategy_coverage", {"baseline": "mean"}),
]
CENTRED = ("darling", "grpo_diversity")  # of any N; strategy_coverage needs more than n


@pytest.mark.parametrize("case", worked_cases("darling"))
@pytest.mark.parametrize(("floor", "key"), [(0.0, "adv_mean_centered"), (0.1, "adv_floor_0.1")])
def test_worked_numbers_of_darling(case: Any, floor: float, key: str) -> None:
    labels = np.array(case["input"]["partition"]) + 1
    got = build("darling", floor=floor).advantages(rewards=case["input"]["quality"], labels=labels)
    np.testing.assert_allclose(got, case["expected"][key], atol=1e-9)


@pytest.mark.parametrize("case", worked_cases("uniqueness_aware"))
@pytest.mark.parametrize(("apply_to", "key"), [("all", "adv_weighted_all"), ("positive", "adv_weighted_positive_only")])
def test_worked_numbers_of_uniqueness(case: Any, apply_to: str, key: str) -> None:
    objective = build("uniqueness_aware", alpha=case["input"]["alpha"], apply_to=apply_to)
    got = objective.advantages(rewards=case["input"]["rewards"], labels=case["input"]["clusters"])
    np.testing.assert_allclose(got, case["expected"][key], atol=1e-9)


def test_a_rare_mistake_is_punished_more_than_a_common_one_unless_only_positive_ones_are_weighed() -> None:
    rewards, labels = [1, 1, 0, 0, 0, 0], [1, 1, 2, 2, 2, 3]
    plain = build("grpo", std="sample").advantages(rewards=rewards)
    both = build("uniqueness_aware").advantages(rewards=rewards, labels=labels)
    np.testing.assert_allclose(both, plain / [2, 2, 3, 3, 3, 1], atol=1e-12)
    positive = build("uniqueness_aware", apply_to="positive").advantages(rewards=rewards, labels=labels)
    np.testing.assert_allclose(positive, plain / [2, 2, 1, 1, 1, 1], atol=1e-12)


def test_darling_pays_a_right_rarity_most() -> None:
    got = build("darling").advantages(rewards=[1, 1, 1, 0, 0], labels=[1, 1, 2, 1, 3])
    np.testing.assert_allclose(got, np.array([0.5, 0.5, 1.0, 0.0, 0.0]) - 0.4, atol=1e-12)


def test_darling_among_the_right_ones_does_not_see_wrong_strategies() -> None:
    objective = build("darling", partition="correct")
    got = objective.advantages(rewards=[1, 1, 1, 0, 0], labels=[1, 1, 2, 3, 4])
    np.testing.assert_allclose(got, np.array([0.5, 0.5, 1.0, 0.0, 0.0]) - 0.4, atol=1e-12)
    lone = objective.advantages(rewards=[1, 0, 0], labels=[1, 1, 2])
    np.testing.assert_allclose(lone, [2 / 3, -1 / 3, -1 / 3], atol=1e-12)


def test_additive_diversity_pays_a_wrong_novelty_for_itself() -> None:
    got = build("grpo_diversity", coefficient=0.5).advantages(rewards=[0, 0, 0], labels=[1, 1, 2])
    np.testing.assert_allclose(got, np.array([0.25, 0.25, 0.5]) - 1 / 3, atol=1e-12)
    without = build("grpo_diversity", coefficient=0.0).advantages(rewards=[1, 0, 0], labels=[1, 1, 2])
    np.testing.assert_array_equal(without, build("grpo").advantages(rewards=[1, 0, 0]))


@pytest.mark.parametrize(("name", "params"), [pair for pair in NAMES if pair[0] in CENTRED])
@settings(max_examples=40)
@given(group=judged)
def test_advantages_add_to_zero(name: str, params: dict[str, Any], group: Judged) -> None:
    assert group.advantages(build(name, **params)).sum() == pytest.approx(0, abs=1e-7)


@settings(max_examples=60)
@given(judged)
def test_merging_two_strategies_makes_nobody_more_diverse(group: Judged) -> None:
    assert np.all(share_elsewhere(*group.merged().arrays) <= share_elsewhere(*group.arrays))
    assert np.all(cluster_sizes(*group.merged().arrays) >= cluster_sizes(*group.arrays))


@pytest.mark.parametrize(("name", "params"), NAMES)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_one_strategy_with_equal_rewards_has_no_gradient(name: str, params: dict[str, Any], reward: float) -> None:
    got = build(name, **params).advantages(rewards=[reward] * 5, labels=[3] * 5)
    np.testing.assert_allclose(got, 0, atol=1e-12)


def test_a_rewarded_rollout_that_is_no_attempt_is_not_paid_for_rarity() -> None:
    unique = build("uniqueness_aware").advantages(rewards=[1, 0, 1, 0], labels=[100, 100, 1, 2])
    assert unique[0] == 0
    assert unique[1] == build("grpo", std="sample").advantages(rewards=[1, 0, 1, 0])[1]
    assert share_elsewhere(np.array([9, 1, 2], np.int32), np.array([True, False, False])).tolist() == [0, 0.5, 0.5]


@pytest.mark.parametrize("name", ["darling", "uniqueness_aware", "grpo_diversity", "strategy_coverage"])
def test_unknown_strategies_have_no_advantage(name: str) -> None:
    with pytest.raises(ValueError, match="unknown"):
        build(name).advantages(rewards=[1, 0], labels=[1, 0], degenerate=[False, False])
    with pytest.raises(ValueError, match="needs labels, and got none"):
        build(name).advantages(rewards=[1, 0])
