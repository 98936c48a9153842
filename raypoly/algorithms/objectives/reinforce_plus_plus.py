"""REINFORCE++: rewards whitened over all response tokens of the step, with or without the group's mean as baseline.

    R_i = r_i                   baseline "none": REINFORCE++
    R_i = r_i - mean r          baseline "group": REINFORCE++-baseline, no division by a group's deviation
    A_i = (R_i - mu) / sqrt(var + 1e-8)

mu and var (unbiased) are over every response token of every group of the step, each token with its response's R_i: a
long response counts more (arXiv 2501.03262, sections 3.1 and 3.2; verl's masked whitening). The reward comes
with the last token and gamma = 1, so all tokens of a response have the same advantage. The paper's KL inside the reward
is `loss.kl_in_reward`, which is added after whitening here.

Needs rewards and the lengths of the whole step. When: groups too small for their own mean (`none` works with N = 1), or
problems of very different difficulty on one scale (`group`).
Known to go wrong: with `none` an always solved problem is paid as much as a rare success; whitening gives a step with
one success as much weight as any other; long failures move the mean. A step of equal R has no gradient; with `group`, a
group of equal rewards has one if mu is not 0.
A skipped group does not count in mu and var. A group may have any size.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.objective import Batch, Objective, ObjectiveConfig, ScoredGroup
from raypoly.core.values import Float64

EPS = 1e-8
"""Added to the variance, as in the released code."""


class ReinforcePlusPlusConfig(ObjectiveConfig):
    baseline: Literal["none", "group"] = Field(
        "none",
        description="Taken off before whitening: nothing (REINFORCE++), or the group's mean (its baseline form).",
    )


class ReinforcePlusPlus(Objective):
    Config = ReinforcePlusPlusConfig
    config: ReinforcePlusPlusConfig

    def compute(self, group: ScoredGroup) -> Float64:
        """R of one group; `finish` turns a step's into advantages."""
        baseline = group.rewards.mean() if self.config.baseline == "group" else 0.0
        out: Float64 = group.rewards - baseline
        return out

    def finish(self, batch: Batch) -> list[Float64]:
        if not batch:
            return []
        values, tokens = batch.numbers, np.concatenate(batch.lengths).astype(np.float64)
        count = tokens.sum()
        if count < 2 or np.ptp(values) == 0:
            return [np.zeros_like(group) for group in batch]
        mean = tokens @ values / count
        variance = tokens @ (values - mean) ** 2 / (count - 1)
        whitened = (values - mean) / np.sqrt(variance + EPS)
        return np.split(whitened, np.cumsum([len(group) for group in batch])[:-1])
