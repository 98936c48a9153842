"""Outcome-based exploration pays for what a problem has seldom seen, and remembers it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import Objective, build
from raypoly.algorithms.objectives.behaviour import outcome_of
from raypoly.core.values import Failure, Verdict
from tests.support.worked_numbers import worked_cases


def knowing(counts: dict[str, int], **params: Any) -> Objective:
    """An objective that has seen these outcomes of problem p."""
    objective = build("outcome_exploration", **params)
    objective.load_state_dict({"counts": {"p": counts}})
    return objective


@pytest.mark.parametrize("case", worked_cases("outcome_exploration"))
@pytest.mark.parametrize(
    ("bonus", "key"),
    [("naive", "adv_naive"), ("ucb_mean", "adv_ucb_mean"), ("ucb_con", "adv_ucb_con"), ("batch", "adv_batch")],
)
def test_worked_numbers(case: Any, bonus: str, key: str) -> None:
    given = case["input"]
    objective = knowing(given["history_counts"], bonus=bonus, c=given["c"], b0=given["b0"])
    got = objective.advantages(rewards=given["rewards"], outcomes=given["answers"], problem="p")
    np.testing.assert_allclose(got, case["expected"][key], atol=1e-9)


def test_the_second_time_an_outcome_is_worth_less_and_another_problem_knows_nothing_of_it() -> None:
    objective = build("outcome_exploration", bonus="naive", c=1.0)
    rewards, outcomes = [0, 0, 0], ["a", "a", "b"]
    first = objective.advantages(rewards=rewards, outcomes=outcomes, problem="p")
    second = objective.advantages(rewards=rewards, outcomes=outcomes, problem="p")
    other = objective.advantages(rewards=rewards, outcomes=outcomes, problem="q")
    np.testing.assert_allclose(first, [1, 1, 1])
    np.testing.assert_allclose(second, [np.sqrt(0.5), np.sqrt(0.5), 1])
    np.testing.assert_allclose(other, first)


def test_memory_survives_a_restart_as_json() -> None:
    before = build("outcome_exploration")
    assert before.state_dict(), "an objective that remembers is asked to see again what came after its checkpoint"
    before.advantages(rewards=[1, 0], outcomes=["passed", "wrong-1"], problem="p")
    after = build("outcome_exploration")
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    group: dict[str, Any] = {"rewards": [1, 0], "outcomes": ["passed", "error"], "problem": "p"}
    np.testing.assert_array_equal(after.advantages(**group), before.advantages(**group))
    assert after.state_dict() == before.state_dict()


def test_it_measures_its_bonus_and_the_share_of_outcomes_that_are_new() -> None:
    objective = build("outcome_exploration", bonus="naive", c=0.5)
    given: dict[str, Any] = {"rewards": [0, 0, 0, 1], "problem": "p"}
    assert objective.credit(outcomes=["a", "a", "b", "c"], **given).measures == {"bonus": 0.5, "unseen": 1.0}
    want = {"bonus": pytest.approx(0.5 * (2 + 2 * np.sqrt(0.5)) / 4), "unseen": 0.25}
    assert objective.credit(outcomes=["a", "a", "b", "d"], **given).measures == want
    alone = build("outcome_exploration", bonus="batch")
    want = {"bonus": pytest.approx(-0.2 * 2 / 16)}
    assert alone.credit(outcomes=["a", "a", "b", "d"], **given).measures == want


@pytest.mark.parametrize("bonus", ["ucb_con", "ucb_mean", "naive", "batch"])
def test_order_means_nothing(bonus: str) -> None:
    rewards, outcomes, order = np.array([1, 0, 0, 1, 0]), np.array(["a", "b", "c", "a", "b"]), [3, 1, 4, 0, 2]
    counts = {"a": 9, "b": 1}
    got = knowing(counts, bonus=bonus).advantages(rewards=rewards, outcomes=outcomes.tolist(), problem="p")
    again = knowing(counts, bonus=bonus).advantages(
        rewards=rewards[order], outcomes=outcomes[order].tolist(), problem="p"
    )
    np.testing.assert_allclose(again, got[order], atol=1e-12)
    if bonus == "ucb_mean":
        assert got.sum() == pytest.approx(0, abs=1e-12)


def test_what_is_not_given_is_named() -> None:
    with pytest.raises(ValueError, match="needs problem, and got none"):
        build("outcome_exploration").advantages(rewards=[1, 0], outcomes=["a", "b"])
    with pytest.raises(ValueError, match="2 rewards need 2 outcomes, got 1"):
        build("outcome_exploration").advantages(rewards=[1, 0], outcomes=["a"], problem="p")


def wrong(got: str, test: int = 2, passed: int = 1) -> Verdict:
    return Verdict("wrong", passed, 3, 0.1, failure=Failure(test, "f(2)", got, "4"))


def test_programs_that_no_test_tells_apart_have_one_outcome() -> None:
    assert outcome_of(Verdict("passed", 3, 3, 0.1)) == outcome_of(Verdict("passed", 3, 3, 0.9, "slow")) == "passed"
    assert outcome_of(wrong("5")) == outcome_of(wrong("5"))
    assert len({outcome_of(each) for each in (wrong("5"), wrong("6"), wrong("5", 1, 0), wrong("5", 2, 2))}) == 4
    assert outcome_of(Verdict("no_code", 0, 3, 0.0)) != outcome_of(Verdict("error", 0, 3, 0.0))


def test_what_the_clock_ended_is_one_outcome_wherever_it_was() -> None:
    ends = [Verdict("timeout", n, 3, 9.0, failure=Failure(n, "f()", "5 s", ""), repeatable=False) for n in (1, 2)]
    assert outcome_of(ends[0]) == outcome_of(ends[1]) == "timeout"
