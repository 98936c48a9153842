"""Strategy coverage: a rollout is worth the strategies with a right rollout that it adds to its sets.

For a set G of n of a group's N rollouts, v(G) = sum over strategies c of max(0, max of r_j over j in G with strategy
c): for rewards of 0 and 1, its number of strategies with a right rollout. By `baseline`, over all sets with i:

    leave_one_out   A_i = mean of v(G) - v(G without i) = mean of max(0, r_i - max(0, best other of i's strategy in G)),
                    for 0/1 rewards r_i C(N - m_i, n - 1) / C(N - 1, n - 1), with m_i right rollouts of i's strategy
    mean            A_i = mean of v(G), minus the mean of that over the group's rollouts

The first is N/n times PKPO's `loo_minus_one` within each strategy (arXiv 2505.15201), with an empty set worth 0. SetPO
(arXiv 2602.01062) also pays a rollout's marginal diversity, by a kernel, as an addition to the advantage. Expected
gradients are N/n and N/n - 1 times that of E v(G). Both are closed forms over a strategy's distinct rewards
(`levels.lifts`); tests compare them with enumeration. `batch` takes many groups at once.

Needs labels. A strategy that a set lacks is worth 0, so a reward below 0 counts as 0. A degenerate rollout enters no
m_i and is valued like a wrong one: 0 with leave_one_out. n is at most N, and smaller with `mean`; n = 1 with
leave_one_out is the reward itself, without a baseline.

When: coverage by right programs counts, and wrong novelty shall not be paid. Known to go wrong:

- leave_one_out is never negative: wrong rollouts lose only what the softmax gives to right ones. `mean` is centred.
- From m_i = N - n + 2 on, where at most n - 2 rollouts are anything else, every set with i has another right rollout of
  its strategy, and all of them get 0. If that is the only right strategy, the group teaches nothing.
- More right rollouts of a common strategy pay ever less, with `mean` less than nothing: choose n for the attempts that
  you will make, not larger.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.levels import lifts
from raypoly.algorithms.objectives.objective import ObjectiveConfig
from raypoly.algorithms.objectives.set_functions import ClosedFormObjective, refuse_whole_group
from raypoly.algorithms.objectives.subset_draws import avoiding
from raypoly.core.errors import UsageError
from raypoly.core.values import Bool, Float64, Int32


class StrategyCoverageConfig(ObjectiveConfig):
    set_size: int = Field(
        4, ge=1, description="Rollouts in a set (n); at most train.rollouts (N), with `baseline: mean` smaller."
    )
    baseline: Literal["leave_one_out", "mean"] = Field(
        "leave_one_out",
        description="What a rollout's sets are compared with: themselves without it, or the `mean` set.",
    )


class StrategyCoverage(ClosedFormObjective):
    Config = StrategyCoverageConfig
    config: StrategyCoverageConfig

    def check(self, rollouts: int) -> None:
        if self.config.baseline == "mean":
            refuse_whole_group(self.config.set_size, rollouts)
        elif self.config.set_size > rollouts:
            raise UsageError(
                f"objective.set_size={self.config.set_size} must be at most train.rollouts={rollouts}: "
                "no set of rollouts is larger than their group."
            )

    def compute_groups(self, rewards_BN: Float64, labels_BN: Int32, degenerate_BN: Bool) -> Float64:
        N, n = rewards_BN.shape[1], self.config.set_size
        self.check(N)
        worth_BN = np.where(degenerate_BN, 0.0, np.maximum(rewards_BN, 0.0))
        missed = avoiding(N, N - 1, n - 1)  # by S, the chance that i's n - 1 companions are none of S given rollouts
        if self.config.baseline == "leave_one_out":
            # A level counts for i where none of the others who reach it, all but i itself, is in the set.
            return lifts(worth_BN, labels_BN, missed)
        # A set with i meets a level surely if i reaches it, else with chance 1 - missed[reach]. So E[v | i in G] is the
        # sum of the latter, equal for all i, plus `missed` of the levels that i reaches.
        added = lifts(worth_BN, labels_BN, missed[1:])
        above = added - added[:, :1]  # equal worth leaves zeros, not rounding errors
        out: Float64 = above - above.mean(axis=1, keepdims=True)
        return out
