"""GRPO and Dr.GRPO: the advantage is the reward minus the group's mean.

A_i = (r_i - mean r) / (std r + eps), DeepSeekMath (arXiv 2402.03300), eq. of section 4.1; std "none" is
Dr.GRPO (arXiv 2503.20783), the baseline of the Poly-EPO study. Needs only rewards.
Known to go wrong: with few working strategies it collapses onto one; a group of equal rewards has no gradient.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.objective import Objective, ObjectiveConfig, ScoredGroup
from raypoly.core.values import Float64

Deviation = Literal["none", "sample", "population"]

EPS = 1e-6
"""Added to the standard deviation, as verl and TRL do."""


class GRPOConfig(ObjectiveConfig):
    std: Deviation = Field(
        "none", description="Divide by the group's standard deviation: `none` is Dr.GRPO, `sample` has ddof=1."
    )


class GRPO(Objective):
    Config = GRPOConfig
    config: GRPOConfig

    def compute(self, group: ScoredGroup) -> Float64:
        return relative(group.rewards, self.config.std)


def relative(rewards: Float64, std: Deviation) -> Float64:
    """Rewards minus their mean, divided by their deviation unless `std` is "none", float64 [N]."""
    centred: Float64 = rewards - rewards.mean()
    if std == "none" or len(rewards) == 1:
        return centred
    out: Float64 = centred / (np.std(rewards, ddof=1 if std == "sample" else 0) + EPS)
    return out
