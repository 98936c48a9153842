"""tuple: N/K plans of K methods each, and an attempt behind each method (CPPO, arXiv 2605.27000, section 3).

A *planner* writes K different methods in one response, a *solver* with the same weights answers once behind each. It
sees the problem and its own method alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from raypoly.core.errors import UsageError
from raypoly.core.values import Draft, Problem
from raypoly.recipes.cppo.tuple_prompts import plan_prompt, solver_prompt
from raypoly.rollouts.scaffolds.plan_contract import read_plan
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig


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
        description="An attempt whose plan has no method for it: behind the problem's prompt (`direct`), or without "
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
        found.chat_template = self.chat_template
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

    @property
    def methods_of_plan(self) -> int:
        return self.config.methods

    def methods(self, drafts: Sequence[Draft], attempts: int) -> Sequence[str | None]:
        return [method for _, method in self._methods(drafts, self.planned_attempts(attempts))]

    def _methods(self, drafts: Sequence[Draft], attempts: int) -> list[tuple[int, str | None]]:
        """The draft of each attempt, and its method there; None where it has none. The last line of a plan that was cut
        by its limit is no method."""
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
