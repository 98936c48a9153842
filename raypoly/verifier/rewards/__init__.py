"""Reward functions: turn a verdict into a number.

    def reward(problem, rollout, verdict) -> float: ...              # reward.name=package.module:reward
    def reward(problem, rollout, verdict, findings) -> float: ...    # findings of the group's stages, by name

Never called for a verdict of `infra`, nor with an unknown finding. Of a stage with a value for each rollout, `findings`
has this rollout's; of `judge` and `prompt_logprobs` it has the group's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from raypoly.core.config import Config
from raypoly.core.values import Float64, Problem, Rollout, Verdict
from raypoly.verifier.rewards.own_function import ComputeScore, OwnFunction

Reward = Callable[..., float]


def reward_function(config: Config) -> Reward:
    """`passed`, `fraction`, `compute_score`, or the user's own function, as `reward.name` says."""
    if config.reward.name == "compute_score":
        return ComputeScore(config.reward)
    known = {name: f"raypoly.verifier.rewards:{name}" for name in ("passed", "fraction")}
    own = OwnFunction.load("reward.name", config.reward.name, known)
    return own.function if config.reward.name in known else _checked(own)


def _checked(own: OwnFunction) -> Reward:
    @functools.wraps(own.function)
    def reward(problem: Problem, *args: Any, **findings: Any) -> float:
        value = own.call(problem, problem, *args, **findings)
        return own.number(problem, value, value)

    return reward


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
