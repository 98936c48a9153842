"""The prompts that a scaffold begins a group with, and how many its attempts have: for checks and forecasts."""

from __future__ import annotations

from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.rollouts.scaffolds.scaffold import Scaffold, checked_asks, is_final

_PROBLEM = Problem("forecast", "prompt", "f", TestSuite("none", ""))


def first_prompts(scaffold: Scaffold, problem: Problem, attempts: int) -> tuple[str, ...]:
    """The distinct prompts of the scaffold's first asks, in the order of use. Raises `UsageError` as `checked_asks`."""
    return tuple(dict.fromkeys(ask.prompt for ask in checked_asks(scaffold, problem, (), attempts)))


def distinct_prompts(scaffold: Scaffold, attempts: int) -> int:
    """P, the distinct prompts of a group's attempts. Those made from drafts are taken to differ, and so are those of a
    scaffold that needs a real problem."""
    try:
        asks = checked_asks(scaffold, _PROBLEM, (), attempts)
    except UsageError:
        return attempts
    return len({ask.prompt for ask in asks}) if is_final(asks) else attempts
