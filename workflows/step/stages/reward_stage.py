"""The stage that finds out a group's outcomes and terms, where they don't follow from its verdicts alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.objectives import Objective
from raypoly.core.config import Config
from raypoly.core.errors import Unknown
from raypoly.core.values import Float64, Group, Problem
from raypoly.verifier.rewards import AnsweredGroup, Rewards
from raypoly.verifier.rewards.terms.known_terms import GRADES
from workflows.step.services import Services
from workflows.step.training_group import REWARD, scored_places, spread_out


class RewardStage(GroupStage):
    """What `Rewards.find` gives."""

    name = REWARD

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        self.rewards = Rewards.of_run(config)
        self.reads_all = self.rewards.outcome.reads_findings
        """Whether it comes after every other stage of the run."""
        reads = {stage for term in self.rewards.terms.values() for stage in term.reads}
        self.after = ("score", *sorted(reads))  # type: ignore[misc]  # the terms' own
        names = ("outcome", *self.rewards.terms)
        self.columns = dict.fromkeys(names, pa.float64())  # type: ignore[misc]
        self.optional = frozenset(names)  # type: ignore[misc]

    @property
    def used(self) -> bool:
        return self.rewards.in_stage and self.objective.reads_rewards

    async def run(self, group: Group, problem: Problem, services: Services) -> Mapping[str, Float64]:
        places = scored_places(group)
        found = await self._find(self._answered(group, problem, places), services)
        return {name: spread_out(values, places, group.size) for name, values in found.items()}

    async def probe(self, group: Group, problem: Problem, services: Services) -> None:
        """Ask of one response."""
        await self._find(self._answered(group, problem, scored_places(group)[:1]), services)

    async def _find(self, answered: AnsweredGroup, services: Services) -> Mapping[str, Float64]:
        outcome, own_terms = self.rewards.outcome, any(term.own for term in self.rewards.terms.values())
        ask_outcome = services.rewards.outcome if outcome.own else None
        return await self.rewards.find(answered, ask_outcome, services.rewards.terms if own_terms else None)

    def _answered(self, group: Group, problem: Problem, places: list[int]) -> AnsweredGroup:
        findings = {name: value for name, value in group.findings.items() if name not in ("score", self.name)}
        reads = self.reads_all or len(self.after) > 1
        if unknown := [name for name in findings if self.reads_all and name != GRADES and not group.knows(name)]:
            raise Unknown(f"the finding of {unknown[0]} is unknown")
        findings = {name: value for name, value in findings.items() if group.knows(name)}
        return AnsweredGroup(
            problem,
            tuple(group.rollouts[place] for place in places),
            tuple((group.verdicts or ())[place] for place in places),
            findings={**findings, "score": group.verdicts} if reads else {},
            step=group.step,
            slot=group.slot,
            places=tuple(places),
            seed=self.config.train.seed,
            max_tokens=self.config.generator.max_tokens,
        )

    def encode(self, finding: Any, size: int) -> Any:
        # the parts that a function gives are known only from what it gave
        values = {name: np.asarray(column, dtype=np.float64) for name, column in dict(finding).items()}
        names = [*self.columns, *sorted(values.keys() - self.columns.keys())]
        return pa.RecordBatch.from_arrays([pa.array(values[n], pa.float64(), from_pandas=True) for n in names], names)

    def decode(self, rows: Any) -> Any:
        return {name: rows.column(name).to_numpy(zero_copy_only=False) for name in rows.schema.names}

    def measures(self, finding: Any, group: Group) -> Mapping[str, float]:
        return self.rewards.measures(finding)
