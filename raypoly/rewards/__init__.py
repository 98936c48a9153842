"""The reward function: turns a verdict into a number.

reward = reward_function(config)
reward(problem, rollout, verdict)        # never called for a verdict `infra`
"""

from __future__ import annotations

from collections.abc import Callable

from raypoly.config import Config
from raypoly.plugins import load_plugin
from raypoly.rewards.compute_score import ComputeScore
from raypoly.values import Problem, Rollout, Verdict

Reward = Callable[[Problem, Rollout, Verdict], float]


def reward_function(config: Config) -> Reward:
    """`passed`, `fraction`, `compute_score`, or the user's own function, as `reward.name` says."""
    if config.reward.name == "compute_score":
        return ComputeScore(config.reward)
    known = {name: f"raypoly.rewards:{name}" for name in ("passed", "fraction")}
    function: Reward = load_plugin(config.reward.name, known, "reward.name")
    return function


def passed(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    """1 where every test passed, else 0: the study's binary reward."""
    return 1.0 if verdict.passed else 0.0


def fraction(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    """The share of tests passed; all are run (`scorer.all_tests`)."""
    return verdict.tests_passed / verdict.tests_total if verdict.tests_total else 0.0
