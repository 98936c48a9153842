"""GRPO + diversity: the reward plus a bonus for having a rare strategy.

    R_i = r_i + coefficient * d_i      d_i = (rollouts of other strategies) / (N - 1)
    A_i = R_i - mean R                 divided by std R + 1e-6 with `std: sample`

The additive shaping that set objectives are compared with (Poly-EPO's GRPO+DIV, arXiv 2604.17654). The paper
states neither d nor the coefficient: d is DARLING's here, and 0.2 is our default.

Needs labels. When: as the baseline, and if all rollouts are wrong, since novelty alone has a gradient here.
Known to go wrong: no coefficient fits: a wrong rollout is paid as soon as its d exceeds E[d] + p / coefficient, where p
is the share of right rollouts, and near p = 1 only the bonus is left. The bonus can be won without a single right
answer. Degenerate rollouts have d = 0 and do not count for others.
Equal rewards and one strategy: zero. A group may have any size; an unjudged one has no gradient.
"""

from __future__ import annotations

from pydantic import Field

from raypoly.algorithms.objectives.darling import share_elsewhere
from raypoly.algorithms.objectives.grpo import GRPO, GRPOConfig, relative
from raypoly.algorithms.objectives.objective import ScoredGroup
from raypoly.core.values import Float64


class GRPODiversityConfig(GRPOConfig):
    coefficient: float = Field(0.2, ge=0, description="What a rollout unlike all others is worth, in rewards.")


class GRPODiversity(GRPO):
    Config = GRPODiversityConfig
    config: GRPODiversityConfig
    needs = frozenset({"labels"})

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.labels is not None
        assert group.degenerate is not None
        bonus = self.config.coefficient * share_elsewhere(group.labels, group.degenerate)
        return relative(group.rewards + bonus, self.config.std)
