"""Best minus second: only the best rollout learns, by how much it beats the second best.

A_i = r_i - (second largest r) for the one best rollout, 0 for all others, and 0 for all if two share the best reward.
arXiv 2503.19595; verl has it as `grpo_passk`. It is neither Pass@k Training nor pass@k for k below N: with `std: none`
it is PKPO's `loo_minus_one` at k = N, an unbiased gradient of the best of all N. `std: sample` divides by the group's
standard deviation (ddof=1) plus 1e-6, as verl does by default.

Needs only rewards, at least two. When: graded rewards, and one best answer counts. Known to go wrong: with rewards of 0
and 1 it learns only from groups in which exactly one rollout passes, and wrong answers are never pushed down.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.grpo import EPS
from raypoly.algorithms.objectives.objective import Objective, ObjectiveConfig, ScoredGroup
from raypoly.core.errors import UsageError
from raypoly.core.values import Float64


class BestMinusSecondConfig(ObjectiveConfig):
    std: Literal["none", "sample"] = Field(
        "none", description="Divide by the group's standard deviation: `sample` has ddof=1, verl's default."
    )


class BestMinusSecond(Objective):
    Config = BestMinusSecondConfig
    config: BestMinusSecondConfig

    def check(self, rollouts: int) -> None:
        if rollouts < 2:
            raise UsageError("objective.name=best_minus_second needs train.rollouts of at least 2.")

    def compute(self, group: ScoredGroup) -> Float64:
        self.check(group.size)
        order = np.argsort(group.rewards)
        best, second = order[-1], order[-2]
        out = np.zeros_like(group.rewards)
        out[best] = group.rewards[best] - group.rewards[second]
        if self.config.std == "sample":
            out /= np.std(group.rewards, ddof=1) + EPS
        return out
