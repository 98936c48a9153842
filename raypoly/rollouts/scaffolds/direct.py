"""direct, chain_of_thought, plan_and_solve: N independent attempts after one prompt."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from raypoly.core.values import Draft, Problem
from raypoly.rollouts.scaffolds.prompt_writing import from_file, with_instruction
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig


class DirectConfig(ScaffoldConfig):
    template: str | None = Field(
        None, description="Your own prompt: a text file with {statement} and perhaps {signature} (docs/data.md)."
    )


class Direct(Scaffold):
    Config = DirectConfig
    config: DirectConfig
    instruction: str | None = None
    """A text after the problem's statement; None for the prompt as it is."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        if self.config.template is not None:
            return [Ask(from_file(problem, self.config.template, "scaffold.template", self.render), count=attempts)]
        if self.instruction is None:
            return [Ask(problem.prompt, count=attempts)]
        return [Ask(with_instruction(problem, self.instruction), count=attempts)]


class ChainOfThought(Direct):
    """Wei et al. 2022, arXiv 2201.11903; in its zero-shot form Kojima et al. 2022, arXiv 2205.11916."""

    instruction = "Think step by step about how to solve it before you write the program."


class PlanAndSolve(Direct):
    """Wang et al. 2023, arXiv 2305.04091."""

    instruction = "First write a short plan: which method you use, and its steps. Then write the program by that plan."
