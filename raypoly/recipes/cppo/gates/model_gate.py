"""model: a plan that breaches the contract is refused; of any other a small language model says how likely it is valid.

p = P(pass) / (P(pass) + P(fail))      J = [p >= tau]        arXiv 2605.27000, equation 9
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from raypoly.core.values import Draft, Float64, Problem
from raypoly.recipes.cppo.gates.base_gate import Gate, GateAnswers, GateConfig
from raypoly.recipes.cppo.gates.contract import keeps_contract
from raypoly.recipes.cppo.gates.gate_folder import gate_folder, read_gate


class ModelGateConfig(GateConfig):
    path: str = Field(min_length=1, description="The gate's folder: a Hugging Face folder with `gate.json`.")
    sha256: str | None = Field(
        None,
        description="Of its `gate.json`, which names the weights by their hash. raypoly sets it, so that another gate "
        "is another run.",
    )
    threads: int = Field(1, ge=1, description="Compute threads of the gate's model on a CPU.")


class ModelGate(Gate):
    """Raises `UsageError` where the folder is no gate."""

    Config = ModelGateConfig
    config: ModelGateConfig

    def __init__(self, config: ModelGateConfig) -> None:
        super().__init__(config)
        self.folder = gate_folder(config.path)
        self.file = read_gate(self.folder)

    @property
    def tau(self) -> float:
        return self.file.tau if self.config.tau is None else self.config.tau

    async def probabilities(self, problem: Problem, drafts: Sequence[Draft], methods: int) -> Float64:
        return (await self.answers(problem, drafts, methods)).p

    async def answers(self, problem: Problem, drafts: Sequence[Draft], methods: int) -> GateAnswers:
        assert self.model is not None, "the run sets it"
        keeps = [keeps_contract(draft, methods) for draft in drafts]
        p, mass = np.zeros(len(drafts)), np.full(len(drafts), np.nan)
        if any(keeps):
            plans = [draft.rollout.text for draft, kept in zip(drafts, keeps, strict=True) if kept]
            p[keeps], mass[keeps] = await self.model.ask(problem, plans)
        return GateAnswers(p, mass)
