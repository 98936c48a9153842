"""The prompts of the scaffold `tuple`: that of a plan, and that of an attempt behind a method of it."""

from __future__ import annotations

from string import ascii_uppercase

from raypoly.core.values import Problem
from raypoly.data.templates import Render
from raypoly.rollouts.scaffolds.prompt_writing import own_prompt, shown, with_instruction


def plan_prompt(problem: Problem, methods: int, file: str | None, render: Render) -> str:
    """It asks for a plan of K = `methods` methods. `file`: the user's own template (`scaffold.plan_template`).

    Raises `UsageError` as `own_prompt`.
    """
    labels = ", ".join(f"{label}:" for label in ascii_uppercase[:methods])
    return own_prompt(problem, "plan", file, render, methods=str(methods), labels=labels)


def solver_prompt(problem: Problem, method: str) -> str:
    """The problem's prompt with the method to use."""
    return with_instruction(problem, f"Use this method: {shown(method)}")
