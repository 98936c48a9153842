"""tuple: N/K plans of K methods each, and an attempt after each method (CPPO, arXiv 2605.27000, section 3).

A *planner* writes K different methods in one response, a *solver* with the same weights answers once after each. It
sees the problem and its own method alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Literal

from pydantic import Field

from raypoly.core.errors import UsageError
from raypoly.core.values import Draft, Problem
from raypoly.data.templates import Render
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.rollouts.scaffolds.prompt_writing import from_file, shown, with_instruction
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig

_TEMPLATES = Path(__file__).with_name("templates")


class TuplePlansConfig(ScaffoldConfig):
    methods: int = Field(4, ge=1, le=26, description="K, the methods of a plan. It divides the attempts.")
    plan_tokens: int = Field(256, ge=1, description="Longest plan, in tokens.")
    history: Literal["joint", "iid"] = Field(
        "joint",
        description="`joint`: one plan has all K methods. `iid`: K plans are drawn alone, and the first method of each "
        "is taken (evaluation only).",
    )
    solve: bool = Field(True, description="Off: training samples plans alone, and scores nothing.")
    missing: Literal["direct", "empty"] = Field(
        "direct",
        description="An attempt whose plan has no method for it: after the problem's prompt (`direct`), or without "
        "tokens, so that it fails (`empty`).",
    )
    plan_template: str | None = Field(
        None, description="Your own prompt for plans: a text file, as for `direct`, with {methods} and {labels}."
    )


class TuplePlans(Scaffold):
    Config = TuplePlansConfig
    config: TuplePlansConfig

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        config = self.config
        if not drafts:
            prompt = plan_prompt(problem, config.methods, config.plan_template, self.render)
            return [Ask(prompt, "plan", self._plans(attempts), max_tokens=config.plan_tokens)]
        if not config.solve:
            return []
        return [self._attempt(problem, *found) for found in self._methods(drafts, attempts)]

    def block(self, attempts: int) -> int:
        return self.config.methods if self.config.history == "joint" else 1

    def planned_drafts(self, attempts: int) -> int:
        return self._plans(attempts)

    def planned_attempts(self, attempts: int) -> int:
        return attempts if self.config.solve else 0

    @property
    def measured(self) -> Scaffold:
        found = type(self)(self.config.model_copy(update={"solve": True}))
        found.chat = self.chat
        return found

    def check(self, attempts: int) -> None:
        if attempts % self.config.methods:
            raise UsageError(
                f"scaffold.methods={self.config.methods} does not divide {attempts} attempts (train.rollouts, or the "
                "samples of an evaluation): change one of them."
            )

    def check_training(self) -> None:
        if self.config.history == "iid":
            raise UsageError("scaffold.history=iid is for evaluation: train with scaffold.history=joint.")

    def remark(self, draft: Draft) -> str:
        plan = read_plan(draft.rollout.text, self.config.methods, cut=draft.rollout.finish_reason == "length")
        return "keeps the contract" if plan.keeps else f"breaches the contract: {', '.join(plan.breaches)}"

    @property
    def methods_of_plan(self) -> int:
        return self.config.methods

    def methods(self, drafts: Sequence[Draft], attempts: int) -> Sequence[str | None]:
        return [method for _, method in self._methods(drafts, self.planned_attempts(attempts))]

    def _methods(self, drafts: Sequence[Draft], attempts: int) -> list[tuple[int, str | None]]:
        """(Draft, method) of each attempt; None for no method. The last line of a plan that was cut is none."""
        taken = self.config.methods if self.config.history == "joint" else 1
        found = []
        for number, draft in enumerate(drafts[: self._plans(attempts)]):
            plan = read_plan(draft.rollout.text, self.config.methods, cut=draft.rollout.finish_reason == "length")
            found += [(number, method) for method in plan.branches[:taken]]
        return found

    def _attempt(self, problem: Problem, number: int, method: str | None) -> Ask:
        if method is not None:
            return Ask(solver_prompt(problem, method), parent=number)
        return self._without_method(problem, number)

    def _without_method(self, problem: Problem, parent: int | None) -> Ask:
        return Ask(problem.prompt, parent=parent, text=None if self.config.missing == "direct" else "")

    def too_long(self, problem: Problem, ask: Ask) -> Ask:
        return self._without_method(problem, ask.parent)

    def _plans(self, attempts: int) -> int:
        return attempts // self.config.methods if self.config.history == "joint" else attempts


def plan_prompt(problem: Problem, methods: int, file: str | None, render: Render) -> str:
    """`file`: the user's own template (`scaffold.plan_template`). Raises `UsageError` as `load_template`."""
    labels = ", ".join(f"{label}:" for label in ascii_uppercase[:methods])
    own = _TEMPLATES / ("plan_completion.txt" if problem.answer == "completion" else "plan.txt")
    key = "scaffold.plan_template"
    return from_file(problem, file or str(own), key, render, methods=str(methods), labels=labels)


def solver_prompt(problem: Problem, method: str) -> str:
    return with_instruction(problem, f"Use this method: {shown(method)}")
