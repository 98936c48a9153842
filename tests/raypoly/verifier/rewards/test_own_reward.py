"""A reward function of the user's own, `reward.name=package.module:function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data import build_problem_set
from raypoly.verifier.rewards import Reward, group_rewards, reads_findings, reward_function

NOT_RUN = Verdict("no_code", 0, 0, 0.0)
GIVEN: dict[str, Any] = {
    "text": "0.5",
    "nothing": None,
    "unknown": float("nan"),
    "infinite": float("-inf"),
    "listed": [1.0],
}
not_callable = 3


def __getattr__(name: str) -> Callable[..., Any]:
    """A reward function for each thing that one may give by mistake."""
    if name not in GIVEN:
        raise AttributeError(name)
    return lambda problem, rollout, verdict: GIVEN[name]


async def later(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    return 1.0


def broken(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    return float(rollout.text)


def is_long(problem: Problem, rollout: Rollout, verdict: Verdict) -> np.bool_:
    return np.bool_(len(rollout.text) > 3)


def with_findings(problem: Problem, rollout: Rollout, verdict: Verdict, findings: Any) -> int:
    return int(findings["doubts"])


def reward(name: str) -> Reward:
    return reward_function(load(None, [f"reward.name={__name__}:{name}"], lambda text: None))


def rollout(text: str) -> Rollout:
    none = np.array([], np.int32)
    return Rollout(none, none, np.array([], np.float32), text, "stop", 0, 0)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return build_problem_set(ProblemsConfig()).splits["train"][0]


def test_it_gives_a_number_for_each_rollout_and_may_read_parts(problem: Problem) -> None:
    rollouts, verdicts = [rollout("long"), rollout("no")], [NOT_RUN] * 2
    assert group_rewards(reward("is_long"), problem, rollouts, verdicts, {}).tolist() == [1.0, 0.0]
    assert reads_findings(reward("with_findings"))
    found = group_rewards(reward("with_findings"), problem, rollouts, verdicts, {"doubts": (4, 5)})
    assert found.tolist() == [4.0, 5.0]


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_no_finite_number_is_no_reward(problem: Problem, name: str) -> None:
    with pytest.raises(RaypolyError) as caught:
        reward(name)(problem, rollout(""), NOT_RUN)
    assert str(caught.value) == (
        f"reward.name={__name__}:{name} gave {GIVEN[name]!r} for a response to problem {problem.id}: it has to give a "
        "finite number."
    )


def test_an_exception_names_the_function_and_the_problem(problem: Problem) -> None:
    with pytest.raises(ValueError, match="could not convert") as caught:
        reward("broken")(problem, rollout("seven"), NOT_RUN)
    assert caught.value.__notes__ == [f"raised by reward.name={__name__}:broken on a response to problem {problem.id}"]


@pytest.mark.parametrize("name", ["later", "not_callable"])
def test_what_is_no_plain_function_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(UsageError, match=f":{name} has to be a function, and not an async one"):
        reward(name)


def test_a_short_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'passed'"):
        reward_function(load(None, ["reward.name=pased"], lambda text: None))
