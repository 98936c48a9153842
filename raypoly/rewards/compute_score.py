"""A reward function with verl's signature (`compute_score`).

    reward = ComputeScore(RewardConfig(name="compute_score", compute_score="my_rewards:compute_score"))
    reward(problem, rollout, verdict)

It is called as in verl, with `data_source`, `solution_str` (the response without special tokens), `ground_truth` and
`extra_info`, and returns a number, or a dict whose "score" is one. An exception stops the run: a broken reward function
never gives a reward. It runs in the driver's process, without a sandbox.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Real

from raypoly.config import RewardConfig
from raypoly.errors import RaypolyError, UsageError
from raypoly.plugins import load_plugin
from raypoly.problems.verl_rows import compute_score_args
from raypoly.values import Problem, Rollout, Verdict


class ComputeScore:
    """Raises `UsageError` where no function is named, it can't be imported, or it is async."""

    def __init__(self, config: RewardConfig) -> None:
        if config.compute_score is None:
            raise UsageError("reward.name=compute_score needs reward.compute_score=package.module:function.")
        self._name = config.compute_score
        self._function = load_plugin(self._name, {}, "reward.compute_score")
        if not callable(self._function) or inspect.iscoroutinefunction(self._function):
            raise UsageError(f"reward.compute_score={self._name} has to be a function, and not an async one.")

    def __call__(self, problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
        truth = compute_score_args(problem)
        try:
            result = self._function(
                data_source=truth.data_source,
                solution_str=rollout.text,
                ground_truth=truth.ground_truth,
                extra_info=truth.extra_info,
            )
        except Exception as error:
            error.add_note(f"raised by reward.compute_score={self._name} on a response to problem {problem.id}")
            raise
        score = result.get("score") if isinstance(result, Mapping) else result
        if not isinstance(score, Real) or not math.isfinite(score):
            raise RaypolyError(
                f"reward.compute_score={self._name} gave {result!r} for a response to problem {problem.id}: it has to "
                'give a finite number, or a dict whose "score" is one.'
            )
        return float(score)
