"""The planned numbers of a group, before anything is sampled: its first prompts, and the rows that are trained."""

from __future__ import annotations

from raypoly.algorithms.objectives import Objective
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


def answers_for_drafts(objective: Objective) -> bool:
    """Whether the objective gives drafts advantages."""
    return type(objective).compute_drafts is not Objective.compute_drafts


def planned_rows(objective: Objective, scaffold: Scaffold, attempts: int) -> int:
    """N where drafts are not trained, N + D where they are, D without attempts; at least 1. They divide a step's loss
    beside the planned problems; being planned, they are the same whatever was sampled."""
    trained = answers_for_drafts(objective) or scaffold.trains_drafts
    drafts = scaffold.planned_drafts(attempts) if trained else 0
    return max(1, scaffold.planned_attempts(attempts) + drafts)
