"""Supervised fine-tuning: every given response has advantage 1, so that `policy_gradient` with `token_mean` is the mean
-log p of their tokens. Rewards play no part (docs/supervised.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from raypoly.algorithms.objectives.objective import Objective, ScoredGroup
from raypoly.core.values import Float64


class Supervised(Objective):
    scaffold = "given"
    loss = "policy_gradient"
    # nobody sampled the responses, so there is no ratio to correct by, which bf16 would bring otherwise
    loss_defaults: ClassVar[Mapping[str, Any]] = {"aggregation": "token_mean", "importance_cap": None}
    reads_rewards = False

    def compute(self, group: ScoredGroup) -> Float64:
        return np.ones(group.size)
