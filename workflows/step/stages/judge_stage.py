"""The stage `judge`: a judge says which of a group's programs share an algorithmic strategy."""

from __future__ import annotations

from typing import Any

from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.objectives import Objective
from raypoly.algorithms.objectives.objective_hooks import needed_stages
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.core.seeds import derive
from raypoly.core.values import Group, Labels, Problem
from raypoly.strategies.judge import SAMPLED_SHARE
from workflows.step.services import Services
from workflows.step.skipped_groups import sound_verdicts


class JudgeStage(GroupStage):
    """Its finding is `Labels`; the store has columns for them. A group that the judge can't label is `unjudged`."""

    name = "judge"

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        self._always = self.name in needed_stages(objective) or config.judge.when == "always"

    @property
    def used(self) -> bool:
        return self._always or self.config.judge.when != "needed"

    def wanted(self, group: Group) -> bool:
        if self._always or self.config.judge.when != "sampled":
            return self._always
        return derive(self.config.train.seed, "judge", group.step, group.slot) % SAMPLED_SHARE == 0

    async def run(self, group: Group, problem: Problem, services: Services) -> Labels:
        labels: Labels = await services.judge.label(problem, group.rollouts, sound_verdicts(group))
        if len(labels.ids) != group.size or not labels.known:
            raise RaypolyError(
                f"The judge {labels.judge} gave {len(labels.ids)} labels, some unknown, for {group.size} rollouts of "
                f"{problem.id}: a judge that can't label a group must raise JudgeRefused."
            )
        return labels

    async def probe(self, group: Group, problem: Problem, services: Services) -> None:
        await services.judge.probe()

    def encode(self, finding: Any, size: int) -> Any:
        return finding
