"""A function of the user's own, or of verl's kind, is a reward; its mistakes are never one."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.core.config import ProblemsConfig, RewardConfig
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data import build_problem_set
from raypoly.planning.canned_rewards import try_rewards
from raypoly.planning.devices import GIB, FreeResources
from raypoly.planning.preflight import check_config
from raypoly.verifier.rewards import AnsweredGroup, RewardFunction, reward_function
from raypoly.verifier.rewards.terms import Term
from tests.support.verl_files import gsm8k_row, write_parquet

MODULE = """
import numpy as np
seen = []
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    seen.append((data_source, solution_str, ground_truth, extra_info))
    return 1.0 if solution_str.rpartition("#### ")[2] == ground_truth else 0.1
def details(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": np.float32(0.5), "acc": True}
def nothing(data_source, solution_str, ground_truth, extra_info=None):
    return None
async def later(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": np.float32(0.5), "acc": True, "why": "text"}
def other(a, b):
    return 1.0
"""


@pytest.fixture
def verl_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
    (tmp_path / "my_rewards.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    path = write_parquet(tmp_path / "a.parquet", [gsm8k_row(5)])
    config = ProblemsConfig(source="verl", path=str(path), chat_template="plain", validation=0, test=0)
    return build_problem_set(config).splits["train"][0]


def verl_reward(name: str) -> RewardFunction:
    return reward_function(load(None, [f"reward.name=my_rewards:{name}"], lambda text: None))


def outcomes(function: RewardFunction, problem: Problem, *texts: str, **more: Any) -> list[float]:
    """float [N] of the texts, by their function in this process."""
    answered = AnsweredGroup(problem, tuple(map(rollout, texts)), (NOT_RUN,) * len(texts), **more)
    found: list[float] = asyncio.run(function.values(answered)).outcome.tolist()
    return found


def rollout(text: str) -> Rollout:
    none = np.array([], np.int32)
    return Rollout(none, none, np.array([], np.float32), text, "stop", 0, 0)


NOT_RUN = Verdict("no_code", 0, 0, 0.0)


def test_it_is_called_as_verl_calls_it(verl_problem: Problem) -> None:
    import my_rewards  # type: ignore[import-not-found]

    my_rewards.seen.clear()
    score = verl_reward("compute_score")
    assert score.form == "verl"
    assert outcomes(score, verl_problem, "5 + 2 #### 7", "seven") == [1.0, 0.1]
    row = gsm8k_row(5)
    assert my_rewards.seen[0] == ("openai/gsm8k", "5 + 2 #### 7", "7", row["extra_info"])


def test_a_dict_gives_its_score_and_its_other_numbers_as_parts(verl_problem: Problem) -> None:
    answered = AnsweredGroup(verl_problem, (rollout(""), rollout("")), (NOT_RUN,) * 2)
    for name in ("details", "later"):
        found = asyncio.run(verl_reward(name).values(answered))
        assert found.outcome.tolist() == [0.5, 0.5]
        assert {part: values.tolist() for part, values in found.parts.items()} == {"part_acc": [1.0, 1.0]}


def test_none_is_unknown(verl_problem: Problem) -> None:
    assert np.isnan(outcomes(verl_reward("nothing"), verl_problem, "a", "b")).all()


def test_a_problem_of_another_source_has_no_ground_truth(verl_problem: Problem) -> None:
    puzzle = build_problem_set(ProblemsConfig()).splits["train"][0]
    with pytest.raises(UsageError, match=r"problems\.source=verl"):
        outcomes(verl_reward("compute_score"), puzzle, "")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["reward.name=compute_score"], "one of your own as package.module:Name"),
        (["reward.name=my_rewards:absent"], "is there and has no absent"),
        (["reward.name=my_rewards:seen"], "has to be a function"),
        (["reward.name=my_rewards:other"], "my_rewards:other takes (a, b): a reward function takes (problem, rollout"),
        (["reward.name=my_rewards:details"], "set problems.source=verl"),
        (["problems.source=verl", "reward.name=my_rewards:details"], "problems.source=verl needs problems.path"),
        (["reward.terms.lenght.weight=1"], "did you mean 'length'"),
        (["reward.terms.mine.weight=1", "reward.terms.mine.name=my_rewards:details"], "a subclass of raypoly."),
        (["reward.terms.overlong.weight=1", "reward.terms.overlong.bufer=3"], "it takes: buffer"),
        (["reward.terms.format.weight=1", "scorer.evidence=false", "objective.name=grpo"], "set scorer.evidence=true"),
        (["reward.terms.Mine.weight=1"], "a term's name is lower-case letters"),
        (
            ["reward.terms.mine.weight=1", f"reward.terms.mine.name={__name__}:NeedsBrevity"],
            "reward.terms.mine needs what the stage brevity finds: add that stage to stages.own",
        ),
        (["reward.terms.judge.weight=1"], "reward.terms.judge needs a judge that grades: set judge.name=openai"),
        (["objective.name=gdpo"], "objective.name=gdpo needs terms beside the outcome"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    verl_problem: Problem, tmp_path: Path, overrides: list[str], said: str
) -> None:
    config = load(None, overrides, lambda text: None)
    with pytest.raises(UsageError) as caught:
        check_config(config, tmp_path / "run", FreeResources(64 * GIB, 64 * GIB))
    assert said in str(caught.value)


def test_other_rewards_are_as_they_were() -> None:
    assert RewardConfig().name == "passed"
    assert reward_function(load(None)).name == "reward.name=passed"


GIVEN: dict[str, Any] = {
    "text": "0.5",
    "unknown": float("nan"),
    "infinite": float("-inf"),
    "listed": [1.0],
    "without_score": {"acc": 1.0},
}
not_callable = 3


def __getattr__(name: str) -> Callable[..., Any]:
    """A reward function for each thing that one may give by mistake."""
    if name not in GIVEN:
        raise AttributeError(name)
    return lambda problem, rollout, verdict: GIVEN[name]


class NeedsBrevity(Term):
    needs = frozenset({"brevity"})

    def compute(self, group: AnsweredGroup) -> Any:
        return group.findings["brevity"]


asked: set[str] = set()


async def later(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    asked.add(rollout.text)
    async with asyncio.timeout(60):
        while len(asked) < 8:  # which one call after the other would never be
            await asyncio.sleep(0.01)
    return 1.0


def for_trl(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> list[float | None]:
    assert {len(column) for column in (prompts, answer, *columns.values())} == {len(completions)}
    return [float(text == right) for text, right in zip(completions, answer, strict=True)]


def too_few(completions: list[str]) -> list[float]:
    return [1.0]


def broken(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    return float(rollout.text)


def is_long(problem: Problem, rollout: Rollout, verdict: Verdict) -> np.bool_:
    return np.bool_(len(rollout.text) > 3)


def with_findings(problem: Problem, rollout: Rollout, verdict: Verdict, findings: Any) -> int:
    return int(findings["doubts"])


def reward(name: str) -> RewardFunction:
    return reward_function(load(None, [f"reward.name={__name__}:{name}"], lambda text: None))


@pytest.fixture(scope="module")
def problem() -> Problem:
    return build_problem_set(ProblemsConfig()).splits["train"][0]


def test_it_gives_a_number_for_each_rollout_and_may_read_parts(problem: Problem) -> None:
    assert outcomes(reward("is_long"), problem, "long", "no") == [1.0, 0.0]
    assert reward("with_findings").reads_findings
    assert outcomes(reward("with_findings"), problem, "a", "b", findings={"doubts": (4, 5)}) == [4.0, 5.0]


def test_trls_form_gets_all_responses_and_the_rows_columns(problem: Problem) -> None:
    row = replace(problem, metadata={"answer": "7"})
    assert reward("for_trl").form == "trl"
    assert outcomes(reward("for_trl"), row, "7", "no", "7") == [1.0, 0.0, 1.0]
    with pytest.raises(RaypolyError, match="for_trl asks for answer, which the row of problem"):
        outcomes(reward("for_trl"), problem, "7")
    with pytest.raises(RaypolyError, match="gave 1 values for 2 responses"):
        outcomes(reward("too_few"), problem, "7", "8")


def by_alarm(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return 1.0


def endless(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    time.sleep(60)
    return 1.0


def leaves(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    raise SystemExit(3)


def test_canned_responses_are_tried_as_the_run_will(problem: Problem) -> None:
    def tried(name: str, *more: str) -> Any:
        return try_rewards(load(None, [f"reward.name={__name__}:{name}", *more], lambda text: None), [problem])

    found, away = tried("is_long", "reward.terms.length.weight=1")
    assert (found["outcome"].tolist(), away) == ([0.0, 1.0], None)  # a puzzle has no known solution to show
    assert found["length"].tolist() == [1.0, 1.0]
    for name, said in (("by_alarm", "signal only works in main thread"), ("leaves", "SystemExit: 3")):
        with pytest.raises(UsageError, match=f"{said}.*: it was asked of a canned response"):
            tried(name)
    assert tried("endless", "reward.timeout=0.1") == ({}, "no answer within reward.timeout=0.1 s")


def test_trls_columns_of_a_row_of_verls_are_as_verl_gives_them(verl_problem: Problem) -> None:
    given = reward("columns_of_verl")
    assert outcomes(given, verl_problem, "7", "8") == [1.0, 0.0]


def columns_of_verl(completions: list[str], ground_truth: list[str], extra_info: list[Any]) -> list[float]:
    assert all(isinstance(info, dict) for info in extra_info)
    return [float(text == truth) for text, truth in zip(completions, ground_truth, strict=True)]


def test_an_async_function_is_asked_of_all_responses_at_once(problem: Problem) -> None:
    asked.clear()
    assert outcomes(reward("later"), problem, *"abcdefgh") == [1.0] * 8


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_no_finite_number_is_no_reward(problem: Problem, name: str) -> None:
    with pytest.raises(RaypolyError) as caught:
        outcomes(reward(name), problem, "")
    assert str(caught.value) == (
        f"reward.name={__name__}:{name} gave {GIVEN[name]!r} for a response to problem {problem.id}: it has to give a "
        'finite number, None where it can\'t say, or a dict whose "score" is one of these.'
    )


def test_an_exception_names_the_function_and_the_problem(problem: Problem) -> None:
    with pytest.raises(ValueError, match="could not convert") as caught:
        outcomes(reward("broken"), problem, "7", "seven")
    where = f"on response 2 to problem {problem.id}, in step 0"
    assert caught.value.__notes__ == [f"raised by reward.name={__name__}:broken {where}"]


def test_what_is_no_function_is_refused_at_the_start() -> None:
    with pytest.raises(UsageError, match=":not_callable has to be a function"):
        reward("not_callable")


def test_a_short_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'passed'"):
        reward_function(load(None, ["reward.name=pased"], lambda text: None))
