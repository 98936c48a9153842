"""The stage `gate`: which of a group's plans are accepted (J of CPPO, arXiv 2605.27000, equation 9).

    p = P(pass) / (P(pass) + P(fail))        J = [p >= tau]

`contract_gate` accepts a plan that breaches nothing (`plan_contract`). `model_gate` refuses any other, and asks a small
language model about the rest. Your own is a subclass of `GateStage`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from raypoly.algorithms.group_stage import GroupStage, StageKeys, StageModel
from raypoly.algorithms.objectives.objective import needed_stages
from raypoly.core.errors import UsageError
from raypoly.core.values import Draft, Group, Problem, TestSuite
from raypoly.recipes.cppo.gate_folder import GateFile, gate_hash, read_gate
from raypoly.recipes.cppo.gate_question import GateAnswers
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.rollouts import scaffolds


class GateKeys(StageKeys):
    tau: float | None = Field(
        None, ge=0, le=1, description="Accept from this probability on. Default: 0.5; for `model_gate` its folder's."
    )


class GateStage(GroupStage):
    """Subclasses write `answers`."""

    name = "gate"
    after = ()
    axis = "draft"
    columns: ClassVar = {"p": pa.float64(), "accepted": pa.bool_(), "mass": pa.float64()}
    optional = frozenset({"mass"})
    Keys: ClassVar[type[GateKeys]] = GateKeys

    @property
    def used(self) -> bool:
        return self.name in needed_stages(self.objective)

    @property
    def tau(self) -> float:
        return 0.5 if self.keys.tau is None else self.keys.tau

    @cached_property
    def methods(self) -> int:
        """K, the methods that a plan should have."""
        return scaffolds.of_run(self.config).methods_of_plan

    @abstractmethod
    async def answers(self, problem: Problem, drafts: Sequence[Draft], services: Any) -> GateAnswers:
        """p and mass of each draft.

        Raise `Away` while a server is away: the run pauses. Nobody's absence is a refusal.
        """

    async def run(self, group: Group, problem: Problem, services: Any) -> Any:
        found = await self.answers(problem, group.drafts, services)
        return {"p": found.p, "accepted": found.p >= self.tau, "mass": found.mass}


class ContractGate(GateStage):
    async def answers(self, problem: Problem, drafts: Sequence[Draft], services: Any) -> GateAnswers:
        p = [float(_keeps_contract(draft, self.methods)) for draft in drafts]
        return GateAnswers(np.array(p), np.full(len(drafts), np.nan))


class ModelGateKeys(GateKeys):
    path: str = Field("", description="The gate's folder: a Hugging Face folder with `gate.json`. Must be given.")
    sha256: str | None = Field(
        None,
        description="Of its `gate.json`, which names the weights by their hash. raypoly sets it, so that another gate "
        "is another run.",
    )
    threads: int = Field(1, ge=1, description="Compute threads of the gate's model on a CPU.")


class ModelGate(GateStage):
    Keys = ModelGateKeys

    @classmethod
    def identify(cls, keys: Mapping[str, Any]) -> Mapping[str, Any]:
        """With `sha256` of the gate. Raises `UsageError` if another is given, or as `read_gate`."""
        path = keys.get("path")
        if not path or not isinstance(path, str):  # the stage says what is wrong
            return keys
        return {**keys, "sha256": gate_hash(_folder(path), keys.get("sha256"))}

    @property
    def asked_model(self) -> StageModel:
        if not self.keys.path:
            raise UsageError("The stage gate needs stages.gate.path, the folder of a gate's model.")
        _ = self.file  # raises where it is no gate, or not the one that was sealed
        return StageModel(_folder(self.keys.path), load_gate_model, self.keys.threads)

    @cached_property
    def file(self) -> GateFile:
        return read_gate(_folder(self.keys.path))

    @property
    def tau(self) -> float:
        return self.file.tau if self.keys.tau is None else float(self.keys.tau)

    async def answers(self, problem: Problem, drafts: Sequence[Draft], services: Any) -> GateAnswers:
        keeps = [_keeps_contract(draft, self.methods) for draft in drafts]
        p, mass = np.zeros(len(drafts)), np.full(len(drafts), np.nan)
        if any(keeps):
            plans = [draft.rollout.text for draft, kept in zip(drafts, keeps, strict=True) if kept]
            # tests and solution stay here: the actor needs neither, and they are large
            bare = replace(problem, tests=TestSuite(problem.tests.kind, ""), public_tests=None, solution="")
            p[keeps], mass[keeps] = await services.models[self.name].ask(bare, plans)
        return GateAnswers(p, mass)


def load_gate_model(folder: Path, on_answer: Any) -> Any:
    from raypoly.recipes.cppo.gate_model import GateModel  # brings PyTorch, which a run's driver lacks

    file = GateFile.of_folder(folder)
    return GateModel.load(folder, file.words, file.template, on_answer, file.chat_template_kwargs)


def _keeps_contract(draft: Draft, methods: int) -> bool:
    return draft.rollout.finish_reason != "length" and read_plan(draft.rollout.text, methods).keeps


def _folder(path: str) -> Path:
    return Path(path).expanduser().absolute()
