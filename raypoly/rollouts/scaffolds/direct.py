"""Scaffolds of one round. direct, chain_of_thought, plan_and_solve: N independent attempts after one prompt;
fixed_strategy and skills: attempts that are told which strategy to use, n in turn."""

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
