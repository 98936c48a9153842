"""A reward function of the user's own: how it is loaded and called, and what it may give.

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

from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.plugins import load_plugin
from raypoly.core.values import Problem


@dataclass(frozen=True)
class OwnFunction:
    """A function and the words that name it."""

    name: str
    """As the config has it: `reward.name=my_rewards:reward`."""
    function: Callable[..., Any]

    @classmethod
    def load(cls, key: str, name: str, known: Mapping[str, str] | None = None) -> OwnFunction:
        """`known`: short names. Raises `UsageError` if it can't be imported, is no function, or is async."""
        function = load_plugin(name, known or {}, key)
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise UsageError(f"{key}={name} has to be a function, and not an async one.")
        return cls(f"{key}={name}", function)

    def call(self, problem: Problem, *args: Any, **kwargs: Any) -> Any:
        """What the function gives. Its exception stops the run, with a note that names the problem."""
        try:
            return self.function(*args, **kwargs)
        except Exception as error:
            error.add_note(f"raised by {self.name} on a response to problem {problem.id}")
            raise

    def number(self, problem: Problem, score: Any, result: Any, may_be: str = "") -> float:
        """The `score` in a result as a reward; `may_be` says what a result may be beside a number.

        Raises `RaypolyError` where it is no finite number: what is unknown is no reward.
        """
        if isinstance(score, Real | np.bool_) and math.isfinite(score):
            return float(score)
        raise RaypolyError(
            f"{self.name} gave {result!r} for a response to problem {problem.id}: it has to give a finite "
            f"number{may_be}."
        )
