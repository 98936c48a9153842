"""RLOO: a rollout is worth its reward against the mean of the others.

A_i = r_i - mean_{j != i} r_j = N / (N - 1) * (r_i - mean r), "Back to Basics" (arXiv 2402.14740), eq. 5.
Needs nothing but rewards. When: as Dr.GRPO, from which it differs by a constant; that constant makes the estimate of
the policy gradient unbiased for any N, so runs with different N compare.
Known to go wrong: what goes wrong with GRPO. A group of one has no other rollout: N >= 2.
"""

from __future__ import annotations

from raypoly.errors import UsageError
from raypoly.objectives.objective import Objective, ScoredGroup
from raypoly.values import Float64


class RLOO(Objective):
    def check(self, rollouts: int) -> None:
        if rollouts < 2:
            raise UsageError(
                f"objective.name=rloo compares a rollout with the others: train.rollouts={rollouts} must be 2 or more."
            )

    def compute(self, group: ScoredGroup) -> Float64:
        self.check(group.size)
        out: Float64 = (group.rewards - group.rewards.mean()) * (group.size / (group.size - 1))
        return out
