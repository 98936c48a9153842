"""The stage `gate`: which of a group's plans are accepted, for objectives that pay plans."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.objectives import Objective
from raypoly.algorithms.objectives.objective_hooks import needed_stages
from raypoly.core.config import Config
from raypoly.core.values import Group, Problem
from raypoly.recipes.cppo import gates
from raypoly.rollouts import scaffolds
from workflows.step.services import Services


class GateStage(GroupStage):
    """Its finding has p and J of each draft, and where a model was asked the probability of its two words together."""

    name = "gate"
    after = ()
    axis = "draft"
    columns: ClassVar = {"p": pa.float64(), "accepted": pa.bool_(), "mass": pa.float64()}
    optional = frozenset({"mass"})

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        if self.used:
            self._gate = gates.of_run(config)
            self._methods = scaffolds.of_run(config).methods_of_plan

    @property
    def used(self) -> bool:
        return self.name in needed_stages(self.objective)

    async def run(self, group: Group, problem: Problem, services: Services) -> Any:
        self._gate.model = services.gate
        found = await self._gate.answers(problem, group.drafts, self._methods)
        return {"p": found.p, "accepted": found.p >= self._gate.tau, "mass": found.mass}
