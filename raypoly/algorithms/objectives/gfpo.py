"""GFPO: sample many rollouts and learn only from the shortest, or those with the most reward per token.

Of N rollouts the `keep` best by `metric` are kept.

    A_i = (r_i - mean_kept r) / std_kept r        for kept rollouts (population standard deviation); 0 for the others

Group Filtered Policy Optimization (arXiv 2508.09726). Equal values keep the shorter rollout, then the earlier one.
Needs lengths. When: responses grow without getting better; sample more (N 16, keep 8) to shorten them more.
Known to go wrong: `shortest` may keep only wrong rollouts, which then have no gradient, or drop the one right answer;
`reward_per_token` with many right ones keeps only right ones, which have none either. Between equal values the order of
sampling decides. The paper's adaptive `keep`, by a running quartile of difficulty, is left out.
Kept rollouts of equal reward have zero advantages. A group with fewer than `keep` rollouts is kept whole.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.objective import Objective, ObjectiveConfig, ScoredGroup
from raypoly.core.errors import UsageError
from raypoly.core.values import Float64


class GFPOConfig(ObjectiveConfig):
    keep: int = Field(4, ge=2, description="Rollouts of a group that are learnt from; at most train.rollouts.")
    metric: Literal["shortest", "reward_per_token"] = Field("shortest", description="By what they are chosen.")


class GFPO(Objective):
    Config = GFPOConfig
    config: GFPOConfig
    needs = frozenset({"lengths"})
    leaves_out = True

    def check(self, rollouts: int) -> None:
        if self.config.keep > rollouts:
            raise UsageError(f"objective.keep={self.config.keep} must be at most train.rollouts={rollouts}.")

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.lengths is not None
        rewards, lengths = group.rewards, group.lengths
        short = self.config.metric == "shortest"
        worth = np.zeros(group.size) if short else rewards / np.maximum(lengths, 1)
        kept = np.lexsort((lengths, -worth))[: self.config.keep]
        out = np.zeros(group.size)
        if np.ptp(rewards[kept]) > 0:
            out[kept] = (rewards[kept] - rewards[kept].mean()) / rewards[kept].std()
        return out
