"""Which parts of a run start beside its learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from raypoly.algorithms.group_stage import GroupStage
from raypoly.core.config import Config
from raypoly.data import ProblemSet
from raypoly.data.problem_set import with_tests
from raypoly.planning.preflight import asks_judge
from raypoly.recipes.cppo import gates
from raypoly.recipes.cppo.gates.model_gate import ModelGate


@dataclass(frozen=True)
class RunParts:
    samples: bool
    """Whether it has engines."""
    scoring: bool
    """Whether any program is run."""
    judging: bool
    """Whether it asks its judge."""
    gate: ModelGate | None
    """The gate, if a stage of the run asks one that is a model."""

    @classmethod
    def of(cls, config: Config, stages: Sequence[GroupStage], problem_set: ProblemSet, samples: bool) -> Self:
        used = {stage.name for stage in stages if stage.used}
        gate = gates.of_run(config) if "gate" in used else None
        return cls(
            samples,
            scoring=samples or bool(config.stages.own or with_tests(problem_set.splits["train"])),
            judging=asks_judge(config) if samples else "judge" in used,
            gate=gate if isinstance(gate, ModelGate) else None,
        )

    def describe(self, engine: str) -> str:
        """The parts, for a person. `engine`: generator.engine."""
        started = {
            "learner": True,
            "engine": self.samples,
            "gate": self.gate is not None,
            "scorers": self.scoring,
            "judge": self.judging,
        }
        *first, last = [name for name, starts in started.items() if starts]
        what = f"{', '.join(first)} and {last}" if first else last
        return f"{what} ({engine})" if self.samples else what
