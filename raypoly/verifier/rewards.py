"""Reward functions: turn a verdict into a number.

    def reward(problem, rollout, verdict) -> float: ...              # reward.name=package.module:reward
    def reward(problem, rollout, verdict, findings) -> float: ...    # findings of the group's stages, by name

Never called for a verdict of `infra`, nor with an unknown finding. Of a stage with a value for each rollout, `findings`
has this rollout's; of `judge` and `prompt_logprobs` it has the group's.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np

from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.plugins import load_plugin
from raypoly.core.values import Float64, Problem, Rollout, Verdict
from raypoly.data.verl_rows import compute_score_args

Reward = Callable[..., float]


def reward_function(config: Config) -> Reward:
    """`passed`, `fraction`, `compute_score`, or the user's own function, as `reward.name` says.

    Raises `UsageError` if a function can't be imported, is none, or is async, or if `compute_score` names none.
    """
    given = config.reward
    if given.name == "compute_score":
        if given.compute_score is None:
            raise UsageError("reward.name=compute_score needs reward.compute_score=package.module:function.")
        return _of_verl(
            f"reward.compute_score={given.compute_score}", _load("reward.compute_score", given.compute_score, {})
        )
    known = {name: f"raypoly.verifier.rewards:{name}" for name in ("passed", "fraction")}
    function = _load("reward.name", given.name, known)
    return function if given.name in known else _checked(f"reward.name={given.name}", function)


def _load(key: str, name: str, known: Mapping[str, str]) -> Callable[..., Any]:
    """`known`: short names."""
    function: Callable[..., Any] = load_plugin(name, known, key)
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise UsageError(f"{key}={name} has to be a function, and not an async one.")
    return function


def _checked(name: str, function: Callable[..., Any]) -> Reward:
    """`name`: as in the config, `reward.name=my_rewards:reward`."""

    @functools.wraps(function)
    def reward(problem: Problem, *args: Any, **findings: Any) -> float:
        with _noted(name, problem):
            value = function(problem, *args, **findings)
        return _number(name, problem, value, value)

    return reward


def _of_verl(name: str, compute_score: Callable[..., Any]) -> Reward:
    """A reward function of one with verl's signature.

    That is called with `data_source`, `solution_str` (the response without special tokens), `ground_truth` and
    `extra_info`; it gives a number, or a dict whose "score" is one. It runs in the driver's process, without a sandbox.
    """

    def reward(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
        truth = compute_score_args(problem)
        with _noted(name, problem):
            result = compute_score(
                data_source=truth.data_source,
                solution_str=rollout.text,
                ground_truth=truth.ground_truth,
                extra_info=truth.extra_info,
            )
        score = result.get("score") if isinstance(result, Mapping) else result
        return _number(name, problem, score, result, ', or a dict whose "score" is one')

    return reward


@contextmanager
def _noted(name: str, problem: Problem) -> Iterator[None]:
    """An exception of a user's function stops the run, with a note that names the problem."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {name} on a response to problem {problem.id}")
        raise


def _number(name: str, problem: Problem, score: Any, result: Any, may_be: str = "") -> float:
    """The `score` in a result as a reward; `may_be`: what a result may be beside a number.

    Raises `RaypolyError` where it is no finite number: what is unknown is no reward.
    """
    if isinstance(score, Real | np.bool_) and math.isfinite(score):
        return float(score)
    raise RaypolyError(
        f"{name} gave {result!r} for a response to problem {problem.id}: it has to give a finite number{may_be}."
    )


def reads_findings(reward: Reward) -> bool:
    return "findings" in inspect.signature(reward).parameters


def group_rewards(
    reward: Reward,
    problem: Problem,
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    findings: Mapping[str, Any],
) -> Float64:
    """Rewards of a group's N rollouts, float64 [N]. `findings`: what its stages found out, by the stage's name."""
    pairs = list(zip(rollouts, verdicts, strict=True))
    if not reads_findings(reward):
        return np.array([reward(problem, *pair) for pair in pairs], dtype=np.float64)
    own = [{name: _own(finding, place) for name, finding in findings.items()} for place in range(len(pairs))]
    found = [reward(problem, *pair, findings=values) for pair, values in zip(pairs, own, strict=True)]
    return np.array(found, dtype=np.float64)


def passed(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    """1 where every test passed, else 0."""
    return 1.0 if verdict.passed else 0.0


def fraction(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    """Share of tests passed; all are run (`scorer.all_tests`)."""
    return verdict.tests_passed / verdict.tests_total if verdict.tests_total else 0.0


def _own(finding: Any, place: int) -> Any:
    # one rollout's value of a finding that has one for each
    if isinstance(finding, Mapping):
        return {name: _own(column, place) for name, column in finding.items()}
    return finding[place] if isinstance(finding, tuple | list | np.ndarray) else finding
