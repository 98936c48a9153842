"""GDPO: the outcome and each term are normalised in their group by themselves, then added and whitened over the batch.

    A_i = sum_k w_k (v_ik - mean v_k) / (std v_k + eps)        over the outcome (weight 1) and the known terms
    A_i = (A_i - mean) / (std + eps)                           over every rollout of the step

arXiv 2601.05242, equations 4 to 6; deviations have ddof=1. With the outcome alone it is `grpo objective.std=sample`,
whitened over the batch. Needs `reward.terms`.
When: several rewards, whose sum would hide which of them a rollout has: (1, 0) and (0, 1) are one group reward to GRPO.
Known to go wrong: a term that hardly differs within a group is blown up to the size of the outcome, noise included; its
weight counts in deviations, not in rewards. A step of equal values has no gradient; a group of equal values has one if
the step's mean is not 0.
"""

from __future__ import annotations

import numpy as np

from raypoly.algorithms.objectives.grpo import EPS, relative
from raypoly.algorithms.objectives.objective import Batch, Objective, ScoredGroup
from raypoly.core.values import Float64


class GDPO(Objective):
    terms = "own"

    def compute(self, group: ScoredGroup) -> Float64:
        """The sum of one group; `finish` whitens a step's."""
        out = relative(group.rewards, "sample")
        for name, values in group.terms.items():
            out = out + group.weights[name] * relative(values, "sample")
        return out

    def finish(self, batch: Batch) -> list[Float64]:
        values = batch.numbers
        if len(values) < 2 or np.ptp(values) == 0:
            return [np.zeros_like(group) for group in batch]
        whitened = (values - values.mean()) / (values.std(ddof=1) + EPS)
        return np.split(whitened, np.cumsum([len(group) for group in batch])[:-1])
