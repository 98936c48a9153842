"""fixed_strategy and skills: attempts that are told which strategy to use, n in turn."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from raypoly.core.values import Draft, Problem
from raypoly.rollouts.scaffolds.prompt_writing import with_instruction
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig


class FixedStrategyConfig(ScaffoldConfig):
    sentences: tuple[str, ...] = Field(
        (
            "Use a loop that builds the result step by step.",
            "Use recursion: reduce the problem to a smaller one.",
            "Use comprehensions and built-in functions.",
            "Use a table or a dictionary of results that are already known.",
        ),
        min_length=1,
        description="The sentences, each behind the problem's statement.",
    )


class FixedStrategy(Scaffold):
    """Attempt i is sampled after sentence i mod n, the same sentences for every problem, in blocks of n."""

    Config = FixedStrategyConfig
    config: FixedStrategyConfig

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        sentences = self.config.sentences
        return [Ask(with_instruction(problem, sentences[i % len(sentences)])) for i in range(attempts)]

    def methods(self, drafts: Sequence[Draft], attempts: int) -> Sequence[str | None]:
        return [self.config.sentences[i % len(self.config.sentences)] for i in range(attempts)]

    def block(self, attempts: int) -> int:
        return whole_block(len(self.config.sentences), attempts)


def whole_block(block: int, attempts: int) -> int:
    """The block where it divides the attempts; else all of them are one."""
    return block if attempts % block == 0 else attempts


class SkillsConfig(ScaffoldConfig):
    skills: int = Field(5, ge=1, description="|Z|. With objective.name=upskill it is objective.skills.")


class Skills(Scaffold):
    """Attempt i is sampled after "Strategy z | " and the prompt, z = 1 + i mod |Z| (UpSkill, arXiv 2602.22296).
    `objective.name=upskill` trains with it, and gives it its number of skills."""

    Config = SkillsConfig
    config: SkillsConfig

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        return [Ask(f"Strategy {1 + i % self.config.skills} | {problem.prompt}") for i in range(attempts)]

    def block(self, attempts: int) -> int:
        return whole_block(self.config.skills, attempts)
