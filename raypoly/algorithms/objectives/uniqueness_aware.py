"""Uniqueness-aware RL: GRPO's advantage, divided by how common the rollout's strategy is in its group.

    A_i = w_i * (r_i - mean r) / (std r + 1e-6)        w_i = 1 / f_i^alpha, f_i rollouts with i's strategy

Arxiv 2601.08763. alpha is not reported; 1 is the default here. The paper multiplies the signed advantage of every
rollout (`apply_to: all`, the default); `positive` leaves negative ones as they are.

Needs labels. When: rare right answers shall move the policy more than common ones from the first step on.
Known to go wrong: with `all` a rare mistake is pushed down harder than a common one, so failed exploration is punished
most; w scales the whole group down (a group of one strategy by N^alpha), so a learning rate tuned for GRPO is too
small; advantages do not add to zero.
A degenerate rollout has no strategy: a positive advantage becomes 0, a negative one stays. Equal rewards: 0.
A group may have any size; an unjudged one has no gradient.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.grpo import GRPO, Deviation, GRPOConfig, relative
from raypoly.algorithms.objectives.objective import ScoredGroup
from raypoly.core.values import Bool, Float64, Int32


class UniquenessAwareConfig(GRPOConfig):
    std: Deviation = Field("sample", description="As for grpo; the paper divides.")
    alpha: float = Field(1.0, ge=0, description="How strongly rarity counts; 0 is GRPO.")
    apply_to: Literal["all", "positive"] = Field("all", description="Which advantages are weighed by rarity.")


class UniquenessAware(GRPO):
    Config = UniquenessAwareConfig
    config: UniquenessAwareConfig
    needs = frozenset({"labels"})
    terms = "beside"

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.labels is not None
        assert group.degenerate is not None
        advantages = relative(group.rewards, self.config.std)
        weight = cluster_sizes(group.labels, group.degenerate) ** -self.config.alpha
        weight = np.where(group.degenerate & (advantages > 0), 0.0, weight)
        if self.config.apply_to == "positive":
            weight = np.where(advantages > 0, weight, 1.0)
        out: Float64 = advantages * weight
        return out


def cluster_sizes(labels: Int32, degenerate: Bool) -> Float64:
    """The number of rollouts with each rollout's strategy, itself included, float64 [N]; 1 for a degenerate one."""
    same = (labels[:, None] == labels[None, :]) & ~degenerate[:, None] & ~degenerate[None, :]
    out: Float64 = np.maximum(same.sum(axis=1), 1).astype(np.float64)
    return out
