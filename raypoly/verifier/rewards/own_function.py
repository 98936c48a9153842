"""A user's own reward function, of ours or verl's signature: loading, calling, and checking what it gives.

own = OwnFunction.load("reward.name", "my_rewards:reward")
value = own.call(problem, problem, rollout, verdict)
own.number(problem, value, value)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from raypoly.core.config import RewardConfig
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.plugins import load_plugin
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data.verl_rows import compute_score_args


@dataclass(frozen=True)
class OwnFunction:
    """A function and the words that name it."""

    name: str
    """As in the config: `reward.name=my_rewards:reward`."""
    function: Callable[..., Any]

    @classmethod
    def load(cls, key: str, name: str, known: Mapping[str, str] | None = None) -> OwnFunction:
        """`known`: short names. Raises `UsageError` if it can't be imported, is no function, or is async."""
        function = load_plugin(name, known or {}, key)
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise UsageError(f"{key}={name} has to be a function, and not an async one.")
        return cls(f"{key}={name}", function)

    def call(self, problem: Problem, *args: Any, **kwargs: Any) -> Any:
        """Call it. Its exception stops the run, with a note that names the problem."""
        try:
            return self.function(*args, **kwargs)
        except Exception as error:
            error.add_note(f"raised by {self.name} on a response to problem {problem.id}")
            raise

    def number(self, problem: Problem, score: Any, result: Any, may_be: str = "") -> float:
        """The `score` in a result as a reward; `may_be`: what a result may be beside a number.

        Raises `RaypolyError` where it is no finite number: what is unknown is no reward.
        """
        if isinstance(score, Real | np.bool_) and math.isfinite(score):
            return float(score)
        raise RaypolyError(
            f"{self.name} gave {result!r} for a response to problem {problem.id}: it has to give a finite "
            f"number{may_be}."
        )


class ComputeScore:
    """A reward function with verl's signature, `RewardConfig(name="compute_score",
    compute_score="my_rewards:function")`.

    Called with `data_source`, `solution_str` (the response without special tokens), `ground_truth` and `extra_info`;
    gives a number, or a dict whose "score" is one. It runs in the driver's process, without a sandbox. Raises
    `UsageError` where no function is named, it can't be imported, or it is async.
    """

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
