"""CPPO's advantages: worked cases, what its parameters do, and that unknown is never a number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import ScoredGroup, build
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Draft, Rollout
from raypoly.planning.preflight import check_config
from raypoly.recipes.cppo.cppo import CPPO, plan_outcomes, plan_shares
from tests.support.worked_numbers import worked_cases

NOTHING = np.zeros(0, np.int32)
PLAN = Draft(Rollout(NOTHING, NOTHING, np.zeros(0, np.float32), "", "stop", 0, 0), "plan")


def group(outcomes: Any, accepted: Any, interleaved: bool = False) -> ScoredGroup:
    """M tuples of K attempts; `interleaved`: attempts take tuples in turn."""
    rewards = np.asarray(outcomes, np.float64)
    tuples, size = rewards.shape
    parents = np.repeat(np.arange(tuples, dtype=np.int32), size)
    order = np.argsort(np.tile(np.arange(size), tuples), kind="stable") if interleaved else np.arange(rewards.size)
    findings = {"gate": {"p": np.asarray(accepted, float), "accepted": np.asarray(accepted, bool)}}
    drafts = (PLAN,) * tuples
    return ScoredGroup(rewards.ravel()[order], findings=findings, drafts=drafts, draft_of=parents[order])


@pytest.mark.parametrize("case", worked_cases("cppo_advantages", "cppo"))
def test_worked_cases(case: Any) -> None:
    given = {"solver_scope" if key == "scope" else key: value for key, value in case["input"].items()}
    outcomes, accepted = given.pop("outcomes"), given.pop("J")
    objective = build("cppo", **given)
    assert isinstance(objective, CPPO)
    found, want = group(outcomes, accepted), case["expected"]
    np.testing.assert_allclose(plan_outcomes(found), want["R_out"])
    np.testing.assert_allclose(objective.plan_rewards(found), want["R_plan"])
    np.testing.assert_allclose(objective.valued(found).drafts, want["A_plan"], atol=1e-9)
    np.testing.assert_allclose(objective.valued(found).numbers, np.ravel(want["A_solve"]), atol=1e-9)


def test_the_order_of_attempts_is_the_groups_not_the_tuples() -> None:
    outcomes, accepted = [[1, 0, 0], [0, 0, 1]], [1, 0]
    objective = build("cppo")
    plain, mixed = group(outcomes, accepted), group(outcomes, accepted, interleaved=True)
    np.testing.assert_array_equal(objective.valued(plain).drafts, objective.valued(mixed).drafts)
    assert mixed.draft_of is not None
    for place in (0, 1):
        mine = objective.valued(mixed).numbers[mixed.draft_of == place]
        np.testing.assert_array_equal(mine, objective.valued(plain).numbers[3 * place : 3 * place + 3])


def test_the_shares_of_plans_are_those_of_the_four_parts() -> None:
    found = build("cppo").valued(group([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1], [0, 1, 0, 0]], [1, 1, 0, 1]))
    findings = {"accepted_solved": 0.5, "accepted_failed": 0.25, "rejected_solved": 0.25, "rejected_failed": 0.0}
    assert found.measures == {"duplicates": 0.0, "solved": 0.75, **findings}


def test_shares_that_are_not_known_are_left_out() -> None:
    same = Draft(Rollout(NOTHING, NOTHING, np.zeros(0, np.float32), "A: Sort.\nB: sort\n", "stop", 0, 0), "plan")
    none = np.zeros(0, np.int32)
    findings = {"gate": {"p": np.ones(2), "accepted": np.ones(2, bool)}}
    warm_up = ScoredGroup(np.zeros(0), findings=findings, drafts=(PLAN, same), draft_of=none)
    assert plan_shares(warm_up) == {"duplicates": 0.5}
    assert set(plan_shares(replace(group([[1], [0]], [1, 1]), findings={}))) == {"duplicates", "solved"}


def test_a_region_of_weight_zero_has_no_rows() -> None:
    found = group([[1, 0], [0, 0]], [1, 1])
    assert build("cppo", plan_weight=0).valued(found).drafts is None
    assert not build("cppo", solver_weight=0).trains_attempts
    assert build("cppo").trains_attempts


def test_the_only_plan_of_a_group_is_paid_as_it_is_or_not_at_all() -> None:
    found = group([[0, 1]], [1])
    assert build("cppo").valued(found).drafts == [1.0]
    assert build("cppo", single="zero").valued(found).drafts == [0.0]


def test_the_warm_up_needs_no_attempts_and_all_else_does() -> None:
    empty = group(np.zeros((3, 0)), [1, 0, 1])
    np.testing.assert_allclose(build("cppo", reward="gate", std="none").valued(empty).drafts, [1 / 3, -2 / 3, 1 / 3])
    assert build("cppo", reward="gate").valued(empty).numbers.shape == (0,)
    with pytest.raises(UsageError, match=r"reward=product needs attempts behind each plan"):
        build("cppo").valued(empty)


def test_without_the_gate_in_its_reward_the_gate_is_not_asked() -> None:
    assert build("cppo").needs == {"drafts", "gate"}
    assert build("cppo", reward="outcome").needs == {"drafts"}


def test_it_needs_a_program_with_plans(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match=r"objective\.name=cppo pays plans, and scaffold\.name=direct has none"):
        check_config(load(None, ["objective.name=cppo", "loss.name=clipped_surrogate"], str), tmp_path)
    check_config(
        load(None, ["objective.name=cppo", "loss.name=clipped_surrogate", "scaffold.name=tuple"], str), tmp_path
    )
