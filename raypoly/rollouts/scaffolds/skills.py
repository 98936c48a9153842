"""skills: attempt i is sampled behind "Strategy z | ", z = 1 + i mod |Z|, before the whole prompt (UpSkill, arXiv
2602.22296). `objective.name=upskill` trains with it, and gives it its number of skills."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from raypoly.core.values import Draft, Problem
from raypoly.rollouts.scaffolds.fixed_strategy import whole_block
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig


class SkillsConfig(ScaffoldConfig):
    skills: int = Field(5, ge=1, description="|Z|. With objective.name=upskill it is objective.skills.")


class Skills(Scaffold):
    Config = SkillsConfig
    config: SkillsConfig

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        return [Ask(f"Strategy {1 + i % self.config.skills} | {problem.prompt}") for i in range(attempts)]

    def block(self, attempts: int) -> int:
        return whole_block(self.config.skills, attempts)
