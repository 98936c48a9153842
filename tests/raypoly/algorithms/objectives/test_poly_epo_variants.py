"""Poly-EPO's floor, its blend and its diversity of correct rollouts, against enumeration in exact rationals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.levels import Levels
from raypoly.algorithms.objectives.polychromic import given_member
from raypoly.core.errors import UsageError
from raypoly.core.values import Int32
from tests.raypoly.algorithms.objectives.exact_poly_epo import Group, conditional_means, groups, parameters
from tests.raypoly.algorithms.objectives.test_estimators import VARIANTS

LOOPS_AND_NOVELTIES = {"rewards": [1] * 7 + [0], "labels": [1] * 6 + [2, 3]}
"""Six right loops, one right comprehension, one wrong recursion."""


@settings(max_examples=120)
@given(groups())
def test_every_variant_is_its_enumeration(group: Group) -> None:
    rewards, labels, *_ = group
    objective = build("poly_epo", reduction="mean", **parameters(group))
    got = objective.advantages(rewards=[float(reward) for reward in rewards], labels=labels)
    want = [float(value) for value in conditional_means(group)]
    np.testing.assert_allclose(got, want, atol=1e-11)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [-0.28125, 1.09375, 0.59375]),
        ({"diversity_of": "correct"}, [-0.1875, 1.5625, -0.4375]),
        ({"floor": 0.1}, [-0.23125, 0.94375, 0.44375]),
        ({"floor": 0.1, "diversity_of": "correct"}, [-0.1375, 1.2625, -0.4375]),
    ],
)
def test_a_wrong_novelty_is_paid_unless_diversity_is_that_of_correct_rollouts(
    params: dict[str, object], expected: list[float]
) -> None:
    got = build("poly_epo", reduction="unit", **params).advantages(**LOOPS_AND_NOVELTIES)
    np.testing.assert_allclose(got, [expected[0]] * 6 + expected[1:], atol=1e-12)


def test_with_a_floor_a_group_of_one_strategy_has_that_share_of_grpos_advantage() -> None:
    rewards = [1.0, 0.0, 1.0, 0.0, 0.0, 0.25, 1.0, 0.0]
    got = build("poly_epo", reduction="unit", floor=0.1).advantages(rewards=rewards, labels=[3] * 8)
    np.testing.assert_allclose(got, 0.1 * build("grpo").advantages(rewards=rewards), atol=1e-12)


def test_a_blend_is_the_share_of_the_best_reward() -> None:
    rewards, labels = [1.0, 0.0, 0.5, 0.0, 0.0, -0.25, 1.0, 0.0], [1, 1, 2, 3, 100, 2, 1, 1]
    paper, best, half, none = (
        build("poly_epo", reduction="mean", **given).advantages(rewards=rewards, labels=labels)
        for given in ({}, {"blend": 1}, {"blend": 0.5}, {"blend": 0})
    )
    np.testing.assert_allclose(half, (paper + best) / 2, atol=1e-12)
    np.testing.assert_array_equal(none, paper)
    held = Levels.of_rewards(np.array(rewards)).best_beside(4)
    np.testing.assert_allclose(best, held - held.mean(), atol=1e-12)
    one_strategy = build("poly_epo", blend=0.5).advantages(rewards=[1, 1, 0, 0, 0, 0, 0, 0], labels=[3] * 8)
    assert one_strategy[0] > 0 > one_strategy[7]
    for blend in (-0.1, 1.1):
        with pytest.raises(UsageError, match=rf"^objective\.blend={blend} does not fit poly_epo: input should be "):
            build("poly_epo", blend=blend)


def test_a_floor_counts_for_sets_of_degenerates_alone() -> None:
    rewards = [1.0, 0.0, 0.5, 0.0]
    got = build("poly_epo", set_size=2, reduction="unit", floor=0.5, require_two=False).advantages(
        rewards=rewards, labels=[1] * 4, degenerate=[True] * 4
    )
    np.testing.assert_allclose(got, 0.5 * build("grpo").advantages(rewards=rewards), atol=1e-12)


@pytest.mark.parametrize(("require_two", "most"), [(True, "0.5"), (False, "0.25")])
def test_a_floor_that_levels_sets_is_refused(require_two: bool, most: str) -> None:
    build("poly_epo", set_size=4, require_two=require_two, floor=float(most))
    with pytest.raises(UsageError, match=rf"objective\.floor=0\.6 does not fit poly_epo: above {most}"):
        build("poly_epo", set_size=4, require_two=require_two, floor=0.6)


def test_1024_rollouts_with_a_floor_are_finite_and_centred() -> None:
    rng = np.random.default_rng(0)
    rewards, labels = rng.integers(0, 2, 1024), rng.integers(1, 1000, 1024)
    objective = build("poly_epo", set_size=16, reduction="unit", floor=0.1, diversity_of="correct")
    got = objective.advantages(rewards=rewards, labels=labels)
    assert np.all(np.isfinite(got))
    assert got.sum() == pytest.approx(0, abs=1e-9)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=2, max_size=8), st.sampled_from(VARIANTS))
def test_merging_two_strategies_raises_no_set(group: list[tuple[int, int]], params: dict[str, Any]) -> None:
    n = len(group)
    rewards, labels = np.array([float(reward) for reward, _ in group]), np.array([label for _, label in group])
    merged = np.where(labels == 2, 1, labels)

    def of_the_one_set(ids: Int32) -> float:
        outside = rewards <= 0 if params.get("diversity_of") == "correct" else np.zeros(n, dtype=np.bool_)
        floor = params.get("floor")
        require_two, least = params.get("require_two", True), None if floor is None else floor / n
        held = given_member(rewards[None], ids[None], outside[None], n, require_two, least)[0]
        assert np.ptp(held) == pytest.approx(0, abs=1e-12)
        return float(held[0])

    assert of_the_one_set(merged) <= of_the_one_set(labels) + 1e-12
