"""Poly-EPO's closed form against worked numbers, of one group and of many at once."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build
from raypoly.core.errors import UsageError
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("poly_epo"))
@pytest.mark.parametrize(("require_two", "suffix"), [(True, ""), (False, "_no_gate")])
def test_worked_numbers(case: Any, require_two: bool, suffix: str) -> None:
    given_, expected = case["input"], case["expected"]
    objective = build("poly_epo", set_size=given_["n"], reduction="sum", require_two=require_two)
    got = objective.advantages(
        rewards=given_["rewards"], labels=given_["clusters"], degenerate_ids=given_["degenerate_ids"]
    )
    np.testing.assert_allclose(got, expected["adv_sum" + suffix], atol=1e-9)
    if require_two:
        mean = build("poly_epo", set_size=given_["n"], reduction="mean")
        got = mean.advantages(rewards=given_["rewards"], labels=given_["clusters"])
        np.testing.assert_allclose(got, expected["adv_mean"], atol=1e-9)


batches = st.tuples(st.integers(1, 5), st.integers(2, 9)).flatmap(
    lambda shape: st.tuples(
        *(
            st.lists(st.lists(cells, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0])
            for cells in (st.sampled_from([0.0, 0.3, 1.0, -2.0]), st.sampled_from([1, 2, 3, 9, 100, -7]), st.booleans())
        ),
        st.integers(1, shape[1] - 1),
        st.sampled_from(
            [{}, {"require_two": False}, {"diversity_of": "correct"}, {"reduction": "unit"}, {"blend": 0.5}]
        ),
    )
)


@settings(max_examples=80)
@given(batches)
def test_a_batch_is_each_of_its_groups_alone(batch: Any) -> None:
    rewards, labels, marks, n, params = batch
    degenerate = np.array(marks) | (np.array(labels) < 1)
    objective = build("poly_epo", set_size=n, **params)
    together = objective.batch(rewards=rewards, labels=labels, degenerate=degenerate)
    for got, *group in zip(together, rewards, labels, degenerate, strict=True):
        alone = objective.advantages(**dict(zip(("rewards", "labels", "degenerate"), group, strict=True)))
        np.testing.assert_allclose(got, alone, rtol=0, atol=1e-12)


def test_a_batch_knows_a_judges_degenerate_ids_and_any_layout_of_memory() -> None:
    rng = np.random.default_rng(3)
    rewards, labels = rng.integers(0, 2, (6, 8)), rng.choice([1, 2, 3, 0, 100], (6, 8))
    objective = build("poly_epo", set_size=3, floor=0.2)
    want = [objective.advantages(rewards=r, labels=c) for r, c in zip(rewards, labels, strict=True)]
    got = objective.batch(rewards=np.asfortranarray(rewards), labels=np.asfortranarray(labels))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    assert objective.batch(rewards=np.zeros((0, 8)), labels=np.zeros((0, 8))).shape == (0, 8)


def test_a_batch_that_does_not_fit_together_is_refused() -> None:
    objective = build("poly_epo", set_size=2)
    with pytest.raises(ValueError, match="B x N finite numbers"):
        objective.batch(rewards=[1, 0, 1], labels=[1, 1, 2])
    with pytest.raises(ValueError, match="1 x 3 rewards need 1 x 3 labels"):
        objective.batch(rewards=[[1, 0, 1]], labels=[[1, 1]])
    with pytest.raises(UsageError, match=r"set_size=2 must be smaller than train\.rollouts=2"):
        objective.batch(rewards=[[1, 0]], labels=[[1, 1]])


def test_unit_is_grpo_where_diversity_is_constant() -> None:
    rewards = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    unit = build("poly_epo", set_size=4, reduction="unit").advantages(rewards=rewards, labels=list(range(1, 9)))
    np.testing.assert_allclose(unit, build("grpo").advantages(rewards=rewards), atol=1e-12)


def test_real_ids_never_collide_with_a_judges_degenerate_ids() -> None:
    labels = list(range(1, 129))
    rewards = [float(i % 2) for i in range(128)]
    objective = build("poly_epo", set_size=4, reduction="mean")
    got = objective.advantages(rewards=rewards, labels=labels, degenerate=[False] * 128)
    assert got[99] == pytest.approx(got[1])


def test_1024_rollouts_are_exact_and_finite() -> None:
    rng = np.random.default_rng(0)
    rewards, labels = rng.integers(0, 2, 1024), rng.integers(1, 6, 1024)
    got = build("poly_epo", set_size=16, reduction="unit").advantages(rewards=rewards, labels=labels)
    assert np.all(np.isfinite(got))
    assert got.sum() == pytest.approx(0, abs=1e-9)
    with pytest.raises(UsageError, match="no finite scale"):
        build("poly_epo", set_size=520, reduction="sum").advantages(
            rewards=np.tile(rewards, 2), labels=np.tile(labels, 2)
        )
    assert math.isfinite(got[0])


def test_set_size_must_be_smaller_than_the_group() -> None:
    with pytest.raises(UsageError, match=r"set_size=4 must be smaller than train\.rollouts=4"):
        build("poly_epo", set_size=4).advantages(rewards=[1, 0, 1, 0], labels=[1, 2, 3, 4])


def test_unknown_labels_have_no_advantage() -> None:
    with pytest.raises(ValueError, match="unknown"):
        build("poly_epo", set_size=2).advantages(rewards=[1, 0, 1], labels=[1, 0, 2], degenerate=[False] * 3)


def test_a_judges_own_degenerate_ids_can_be_configured() -> None:
    ours = build("poly_epo", set_size=2, degenerate_ids=[9]).advantages(rewards=[1, 0, 1], labels=[9, 1, 2])
    usual = build("poly_epo", set_size=2).advantages(rewards=[1, 0, 1], labels=[100, 1, 2])
    np.testing.assert_array_equal(ours, usual)


def test_a_wrong_parameter_is_named() -> None:
    with pytest.raises(UsageError, match="set_sise"):
        build("poly_epo", set_sise=4)
