"""A function of verl's kind is a reward; its mistakes are never one."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

from raypoly.core.config import ProblemsConfig, RewardConfig
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data import build_problem_set
from raypoly.planning.free_resources import GIB, FreeResources
from raypoly.planning.preflight import check_config
from raypoly.verifier.rewards import Reward, reward_function
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
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
    (tmp_path / "my_rewards.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    path = write_parquet(tmp_path / "a.parquet", [gsm8k_row(5)])
    config = ProblemsConfig(source="verl", path=str(path), chat_template="plain", validation=0, test=0)
    return build_problem_set(config).splits["train"][0]


def reward(name: str) -> Reward:
    given = ["reward.name=compute_score", f"reward.compute_score=my_rewards:{name}"]
    return reward_function(load(None, given, lambda text: None))


def rollout(text: str) -> Rollout:
    none = np.array([], np.int32)
    return Rollout(none, none, np.array([], np.float32), text, "stop", 0, 0)


NOT_RUN = Verdict("no_code", 0, 0, 0.0)


def test_it_is_called_as_verl_calls_it(problem: Problem) -> None:
    import my_rewards  # type: ignore[import-not-found]

    my_rewards.seen.clear()
    score = reward("compute_score")
    assert score(problem, rollout("5 + 2 #### 7"), NOT_RUN) == 1.0
    assert score(problem, rollout("seven"), NOT_RUN) == 0.1
    row = gsm8k_row(5)
    assert my_rewards.seen[0] == ("openai/gsm8k", "5 + 2 #### 7", "7", row["extra_info"])


def test_a_dict_gives_its_score(problem: Problem) -> None:
    assert reward("details")(problem, rollout(""), NOT_RUN) == 0.5


def test_an_exception_stops_with_its_cause_and_is_no_reward(problem: Problem) -> None:
    with pytest.raises(ValueError, match="could not convert string to float") as caught:
        reward("broken")(problem, rollout("seven"), NOT_RUN)
    told = "".join(traceback.format_exception(caught.value))
    assert f"my_rewards:broken on a response to problem {problem.id}" in told


@pytest.mark.parametrize("name", ["nothing", "unknown", "infinite"])
def test_what_is_no_number_is_no_reward(problem: Problem, name: str) -> None:
    with pytest.raises(RaypolyError, match=f"my_rewards:{name} gave .* a finite number"):
        reward(name)(problem, rollout(""), NOT_RUN)


def test_a_problem_of_another_source_has_no_ground_truth(problem: Problem) -> None:
    puzzle = build_problem_set(ProblemsConfig()).splits["train"][0]
    with pytest.raises(UsageError, match=r"problems\.source=verl"):
        reward("compute_score")(puzzle, rollout(""), NOT_RUN)


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
    problem: Problem, tmp_path: Path, overrides: list[str], said: str
) -> None:
    config = load(None, ["reward.name=compute_score", *overrides], lambda text: None)
    with pytest.raises(UsageError) as caught:
        check_config(config, tmp_path / "run", FreeResources(64 * GIB, 64 * GIB))
    assert said in str(caught.value)


def test_other_rewards_are_as_they_were() -> None:
    assert RewardConfig().name == "passed"
    assert reward_function(load(None)).__name__ == "passed"
