"""contract: a plan that breaches nothing is accepted (`raypoly.rollouts.scaffolds.plan_contract`). One that was cut is
not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raypoly.core.values import Draft, Float64, Problem
from raypoly.recipes.cppo.gates.base_gate import Gate
from raypoly.rollouts.scaffolds.plan_contract import read_plan


class ContractGate(Gate):
    async def probabilities(self, problem: Problem, drafts: Sequence[Draft], methods: int) -> Float64:
        return np.array([float(keeps_contract(draft, methods)) for draft in drafts])


def keeps_contract(draft: Draft, methods: int) -> bool:
    """Whether a plan of K `methods` keeps the contract."""
    whole = draft.rollout.finish_reason != "length"
    return whole and read_plan(draft.rollout.text, methods).keeps
