"""direct: N attempts, all behind the problem's prompt."""

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
    """Independent attempts behind one prompt. Subclasses name an `instruction`."""

    Config = DirectConfig
    config: DirectConfig
    instruction: str | None = None
    """What stands behind the problem's statement; None for the prompt as it is."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        if self.config.template is not None:
            return [Ask(from_file(problem, self.config.template, "scaffold.template", self.render), count=attempts)]
        if self.instruction is None:
            return [Ask(problem.prompt, count=attempts)]
        return [Ask(with_instruction(problem, self.instruction), count=attempts)]
