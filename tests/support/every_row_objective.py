"""GRPO without std, in which no response is left out of the update.

raypoly skips responses without advantage, whose gradient is zero; TRL computes them. For equal work each zero becomes
a number that changes nothing.
"""

import numpy as np

from raypoly.algorithms.objectives.grpo import GRPO
from raypoly.algorithms.objectives.objective import ScoredGroup
from raypoly.core.values import Float64

NEARLY_ZERO = 1e-12


class EveryRow(GRPO):
    def compute(self, group: ScoredGroup) -> Float64:
        advantages = super().compute(group)
        return np.where(advantages == 0.0, NEARLY_ZERO, advantages)
