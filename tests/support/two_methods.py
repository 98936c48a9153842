"""A scaffold whose plans have two methods, `A: ...` and `B: ...`, and an attempt after each."""

from __future__ import annotations

from collections.abc import Sequence

from raypoly.core.errors import UsageError
from raypoly.core.values import Draft, Problem
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig


class TwoMethods(Scaffold):
    def __init__(self) -> None:
        super().__init__(ScaffoldConfig())

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        if not drafts:
            return [Ask(problem.prompt, "plan", attempts // 2)]
        return [Ask(f"# {method}\n{problem.prompt}") for method in self.methods(drafts, attempts)]

    def methods(self, drafts: Sequence[Draft], attempts: int) -> Sequence[str | None]:
        found = [dict(line.split(": ", 1) for line in it.rollout.text.splitlines() if ": " in line) for it in drafts]
        return [each.get(label) for each in found for label in "AB"]

    def block(self, attempts: int) -> int:
        return 2

    def check(self, attempts: int) -> None:
        if attempts % 2:
            raise UsageError(f"{attempts} attempts are not those of whole plans.")
