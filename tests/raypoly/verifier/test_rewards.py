"""A function of the user's own, or of verl's kind, is a reward; its mistakes are never one."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.core.config import ProblemsConfig, RewardConfig
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data import build_problem_set
from raypoly.planning.devices import GIB, FreeResources
from raypoly.planning.preflight import check_config
from raypoly.verifier.rewards import Reward, group_rewards, reads_findings, reward_function
from tests.support.verl_files import gsm8k_row, write_parquet

MODULE = """
import numpy as np
seen = []
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    seen.append((data_source, solution_str, ground_truth, extra_info))
    return 1.0 if solution_str.rpartition("#### ")[2] == ground_truth else 0.1
def details(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": np.float32(0.5), "acc": True}
def broken(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str)
def nothing(data_source, solution_str, ground_truth, extra_info=None):
    return None
def unknown(data_source, solution_str, ground_truth, extra_info=None):
    return {"acc": 1.0}
def infinite(data_source, solution_str, ground_truth, extra_info=None):
    return float("nan")
async def later(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0
"""


@pytest.fixture
def verl_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
    (tmp_path / "my_rewards.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    path = write_parquet(tmp_path / "a.parquet", [gsm8k_row(5)])
    config = ProblemsConfig(source="verl", path=str(path), chat_template="plain", validation=0, test=0)
    return build_problem_set(config).splits["train"][0]


def verl_reward(name: str) -> Reward:
    given = ["reward.name=compute_score", f"reward.compute_score=my_rewards:{name}"]
    return reward_function(load(None, given, lambda text: None))


def rollout(text: str) -> Rollout:
    none = np.array([], np.int32)
    return Rollout(none, none, np.array([], np.float32), text, "stop", 0, 0)


NOT_RUN = Verdict("no_code", 0, 0, 0.0)


def test_it_is_called_as_verl_calls_it(verl_problem: Problem) -> None:
    import my_rewards  # type: ignore[import-not-found]

    my_rewards.seen.clear()
    score = verl_reward("compute_score")
    assert score(verl_problem, rollout("5 + 2 #### 7"), NOT_RUN) == 1.0
    assert score(verl_problem, rollout("seven"), NOT_RUN) == 0.1
    row = gsm8k_row(5)
    assert my_rewards.seen[0] == ("openai/gsm8k", "5 + 2 #### 7", "7", row["extra_info"])


def test_a_dict_gives_its_score(verl_problem: Problem) -> None:
    assert verl_reward("details")(verl_problem, rollout(""), NOT_RUN) == 0.5


def test_an_exception_stops_with_its_cause_and_is_no_reward(verl_problem: Problem) -> None:
    with pytest.raises(ValueError, match="could not convert string to float") as caught:
        verl_reward("broken")(verl_problem, rollout("seven"), NOT_RUN)
    told = "".join(traceback.format_exception(caught.value))
    assert f"my_rewards:broken on a response to problem {verl_problem.id}" in told


@pytest.mark.parametrize("name", ["nothing", "unknown", "infinite"])
def test_what_is_no_number_is_no_reward(verl_problem: Problem, name: str) -> None:
    with pytest.raises(RaypolyError, match=f"my_rewards:{name} gave .* a finite number"):
        verl_reward(name)(verl_problem, rollout(""), NOT_RUN)


def test_a_problem_of_another_source_has_no_ground_truth(verl_problem: Problem) -> None:
    puzzle = build_problem_set(ProblemsConfig()).splits["train"][0]
    with pytest.raises(UsageError, match=r"problems\.source=verl"):
        verl_reward("compute_score")(puzzle, rollout(""), NOT_RUN)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([], "needs reward.compute_score=package.module:function"),
        (["reward.compute_score=compute_score"], "Give one of your own as package.module:Name"),
        (["reward.compute_score=my_rewards:absent"], "is there and has no absent"),
        (["reward.compute_score=my_rewards:later"], "not an async one"),
        (["reward.compute_score=my_rewards:details"], "set problems.source=verl"),
        (
            ["problems.source=verl", "reward.compute_score=my_rewards:details"],
            "problems.source=verl needs problems.path",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    verl_problem: Problem, tmp_path: Path, overrides: list[str], said: str
) -> None:
    config = load(None, ["reward.name=compute_score", *overrides], lambda text: None)
    with pytest.raises(UsageError) as caught:
        check_config(config, tmp_path / "run", FreeResources(64 * GIB, 64 * GIB))
    assert said in str(caught.value)


def test_other_rewards_are_as_they_were() -> None:
    assert RewardConfig().name == "passed"
    assert reward_function(load(None)).__name__ == "passed"


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
