"""A reward function with verl's signature (`compute_score`).

    reward = ComputeScore(RewardConfig(name="compute_score", compute_score="my_rewards:compute_score"))
    reward(problem, rollout, verdict)

It is called as in verl, with `data_source`, `solution_str` (the response without special tokens), `ground_truth` and
`extra_info`, and returns a number, or a dict whose "score" is one. An exception stops the run: a broken reward function
never gives a reward. It runs in the driver's process, without a sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping

from raypoly.core.config import RewardConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data.verl_rows import compute_score_args
from raypoly.verifier.rewards.own_function import OwnFunction


class ComputeScore:
    """Raises `UsageError` where no function is named, it can't be imported, or it is async."""

    def __init__(self, config: RewardConfig) -> None:
        if config.compute_score is None:
            raise UsageError("reward.name=compute_score needs reward.compute_score=package.module:function.")
        self._own = OwnFunction.load("reward.compute_score", config.compute_score)

    def __call__(self, problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
        truth = compute_score_args(problem)
        result = self._own.call(
            problem,
            data_source=truth.data_source,
            solution_str=rollout.text,
            ground_truth=truth.ground_truth,
            extra_info=truth.extra_info,
        )
        score = result.get("score") if isinstance(result, Mapping) else result
        return self._own.number(problem, score, result, ', or a dict whose "score" is one')
