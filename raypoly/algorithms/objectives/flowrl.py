"""FlowRL: rewards normalised within the group, for a loss that fits probabilities to them.

r_hat_i = (r_i - mean r) / (std r + eps), FlowRL (arXiv 2509.15207): GRPO's advantage with its deviation. The
loss (`loss.name=flowrl`, raypoly/algorithms/losses/flowrl_loss.py) is new; without it this is `grpo` with
`std=sample`. Needs only rewards. When: several kinds of right answers shall keep their shares.
Known to go wrong: r_hat does not depend on a problem's difficulty; a group of equal rewards pulls to the reference.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raypoly.algorithms.objectives.grpo import relative
from raypoly.algorithms.objectives.objective import Objective, ObjectiveConfig, ScoredGroup
from raypoly.core.values import Float64


class FlowRLConfig(ObjectiveConfig):
    std: Literal["sample", "population"] = Field("sample", description="Which deviation: `sample` has ddof=1.")


class FlowRL(Objective):
    Config = FlowRLConfig
    config: FlowRLConfig
    loss = "flowrl"

    def compute(self, group: ScoredGroup) -> Float64:
        return relative(group.rewards, self.config.std)
