"""RLOO: the advantage is the reward minus the mean of the others.

A_i = r_i - mean_{j != i} r_j = N / (N - 1) * (r_i - mean r), "Back to Basics" (arXiv 2402.14740), eq. 5.
Needs only rewards. When: as Dr.GRPO, from which it differs by a factor that makes the estimate of the policy gradient
unbiased for any N, so runs with different N are comparable.
Known to go wrong: as GRPO. A group of one has no other rollout: N >= 2.
"""

from __future__ import annotations

from raypoly.algorithms.objectives.objective import Objective, ScoredGroup
from raypoly.core.errors import UsageError
from raypoly.core.values import Float64


class RLOO(Objective):
    def check(self, rollouts: int) -> None:
        if rollouts < 2:
            raise UsageError(f"objective.name=rloo compares rollouts: train.rollouts={rollouts} must be 2 or more.")

    def compute(self, group: ScoredGroup) -> Float64:
        self.check(group.size)
        out: Float64 = (group.rewards - group.rewards.mean()) * (group.size / (group.size - 1))
        return out
