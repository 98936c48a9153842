"""CPPO: a planner is paid if its plan is accepted and one of its K attempts passes; the solver learns within each plan.

    R_out = max_i r_i        R_plan = J R_out                  J in {0, 1}: the gate accepts the plan
    A_i    = (r_i - mean r) / (std r + 1e-6)                   over the K attempts of one plan
    A_plan = (R_plan - mean R_plan) / (std R_plan + 1e-6)      over the M plans of the group

Coordinated Pass@K Policy Optimization, arXiv 2605.27000, equations 8 to 12. `reward: outcome` leaves J out, `reward:
gate` leaves the outcome out (the warm-up: no attempt is needed). `solver_scope: group` compares an attempt with all of
the group. A weight of 0 leaves a region out: it has no rows, and so no KL term either.

Needs drafts (`scaffold.name=tuple`). Brings the stage `contract_gate` where `stages.own` has no gate. When: attempts
should differ by plan, not by chance.
Known to go wrong: without the gate plans repeat themselves or hold code; a solver that is punished after wrong methods
learns to ignore methods (`followed` of an evaluation); if no plan is accepted or no attempt passes, the planner has no
gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.grpo import Deviation, compare_with_peers
from raypoly.algorithms.objectives.objective import Credit, Objective, ObjectiveConfig, ScoredGroup
from raypoly.analysis.metrics.plan_diversity import has_duplicate
from raypoly.core.errors import UsageError
from raypoly.core.values import ATTEMPT, Float64
from raypoly.recipes.cppo.plan_contract import read_plan


class CPPOConfig(ObjectiveConfig):
    reward: Literal["product", "outcome", "gate"] = Field(
        "product", description="What a plan is worth: J R_out (`product`), R_out (`outcome`), or J (`gate`)."
    )
    solver_scope: Literal["tuple", "group"] = Field(
        "tuple", description="Whom an attempt is compared with: those of its plan, or all of the group."
    )
    plan_weight: float = Field(1.0, ge=0, description="Of the plans' advantages; 0: plans have no rows.")
    solver_weight: float = Field(1.0, ge=0, description="Of the attempts' advantages; 0: attempts have no rows.")
    single: Literal["raw", "zero"] = Field(
        "raw", description="The advantage of the only plan of a group: R_plan (REINFORCE, `raw`), or none (`zero`)."
    )
    std: Deviation = Field(
        "sample", description="Divide by the standard deviation of those compared: `sample` has ddof=1."
    )


class CPPO(Objective):
    Config = CPPOConfig
    config: CPPOConfig
    loss = "clipped_surrogate"
    stages = ("contract_gate",)
    trains_drafts = True
    loss_defaults: ClassVar[Mapping[str, Any]] = {
        "clip_low": 0.2,
        "clip_high": 0.2,
        "dual_clip": None,
        "kl_coefficient": 0.01,
        "kl": "k3",
        "aggregation": "seq_mean_token_mean",
    }

    def __init__(self, config: CPPOConfig) -> None:
        super().__init__(config)
        self.needs = frozenset({"drafts"} if config.reward == "outcome" else {"drafts", "gate"})  # type: ignore[misc]

    @property
    def trains_attempts(self) -> bool:
        return self.config.solver_weight > 0

    def compute(self, group: ScoredGroup) -> Credit:
        assert group.draft_of is not None
        whole = self.config.solver_scope == "group"
        peers = [(ATTEMPT, None if whole else parent) for parent in group.draft_of.tolist()]
        attempts = self.config.solver_weight * compare_with_peers(group.rewards, peers, self.config.std)
        return Credit(attempts, self._of_plans(group), plan_shares(group))

    def _of_plans(self, group: ScoredGroup) -> Float64 | None:
        config = self.config
        if not config.plan_weight:
            return None
        rewards = self.plan_rewards(group)
        if len(rewards) == 1:
            return config.plan_weight * rewards if config.single == "raw" else np.zeros(1)
        peers = [(draft.role, draft.parent) for draft in group.drafts]
        return config.plan_weight * compare_with_peers(rewards, peers, config.std)

    def plan_rewards(self, group: ScoredGroup) -> Float64:
        """R_plan, float64 [D] (equation 10)."""
        kind = self.config.reward
        accepted = None if kind == "outcome" else np.asarray(group.findings["gate"]["accepted"], np.float64)
        if kind == "gate":
            assert accepted is not None
            return accepted
        outcomes = plan_outcomes(group, kind)
        return outcomes if accepted is None else accepted * outcomes


def plan_shares(group: ScoredGroup) -> Mapping[str, float]:
    """Shares of the group's plans, as far as known. `duplicates`: two methods are the same (`wording`);
    `solved`: R_out > 0. With a gate beside attempts, the four cases of J and R_out: `accepted_solved` (the density of
    R_plan), `accepted_failed`, `rejected_solved`, `rejected_failed`."""
    methods = [read_plan(draft.rollout.text, len(ascii_uppercase)).methods for draft in group.drafts]
    found = {"duplicates": [has_duplicate(own) for own in methods]}
    if group.draft_of is not None and len(set(group.draft_of.tolist()) - {-1}) == len(group.drafts):
        solved = plan_outcomes(group) > 0
        found["solved"] = solved.tolist()
        if "gate" in group.findings:
            accepted = np.asarray(group.findings["gate"]["accepted"], bool)
            for name, own in (("accepted", accepted), ("rejected", ~accepted)):
                found |= {f"{name}_solved": (own & solved).tolist(), f"{name}_failed": (own & ~solved).tolist()}
    return {name: sum(own) / len(own) for name, own in found.items() if own}


def plan_outcomes(group: ScoredGroup, kind: str = "product") -> Float64:
    """R_out, the best reward of each draft's attempts, float64 [D] (equation 8).

    Raises `UsageError` for a draft without attempts: its worth is not known.
    """
    assert group.draft_of is not None
    behind = [group.rewards[group.draft_of == place] for place in range(len(group.drafts))]
    if not all(len(rewards) for rewards in behind):
        raise UsageError(
            f"objective.reward={kind} needs attempts behind each plan, and the scaffold gave none: set "
            "scaffold.solve=true, or objective.reward=gate."
        )
    return np.array([rewards.max() for rewards in behind])
