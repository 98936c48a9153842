"""The prompts that a program begins a group with, and how many its attempts have: for checks and forecasts."""

from __future__ import annotations

from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.rollouts.scaffolds.program import Program, checked_asks, is_final

_PROBLEM = Problem("forecast", "prompt", "f", TestSuite("none", ""))


def first_prompts(program: Program, problem: Problem, attempts: int) -> tuple[str, ...]:
    """The distinct prompts of the program's first asks, in the order of use. Raises `UsageError` as `checked_asks`."""
    return tuple(dict.fromkeys(ask.prompt for ask in checked_asks(program, problem, (), attempts)))


def distinct_prompts(program: Program, attempts: int) -> int:
    """P, the distinct prompts of a group's attempts. Those made from drafts are taken to differ, and so are those of a
    program that needs a real problem."""
    try:
        asks = checked_asks(program, _PROBLEM, (), attempts)
    except UsageError:
        return attempts
    return len({ask.prompt for ask in asks}) if is_final(asks) else attempts
