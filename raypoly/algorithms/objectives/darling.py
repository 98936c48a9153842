"""DARLING: the reward times the share of rollouts with another strategy.

    R_i = r_i * max(d_i, floor)        d_i = (rollouts of other strategies) / (N - 1)
    A_i = R_i - mean R                 not divided by a deviation

Arxiv 2509.02534; its loss is `loss.aggregation=token_mean`, without KL. The paper has no floor (the default, 0); the
released code has 0.1. `partition: correct` compares right rollouts (r > 0) only with right ones: d_i = (right ones of
other strategies) / (right ones - 1), and 1 for the only right one.

Needs labels. When: only right answers shall be paid for novelty: with rewards of 0 and 1 a wrong answer gets 0 whatever
its strategy. Degenerate rollouts have no strategy: their d is 0, and they do not raise that of others.
Known to go wrong: with floor 0 a group of one strategy has no gradient, however mixed its rewards; a lone right answer
is paid for the variety of the wrong ones (`all`); common right answers are paid less than rare ones and may be
punished; negative rewards punish rare mistakes most. A group may have any size; an unjudged one has no gradient.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.objective import Objective, ObjectiveConfig, ScoredGroup
from raypoly.core.values import Bool, Float64, Int32


class DarlingConfig(ObjectiveConfig):
    floor: float = Field(0.0, ge=0, le=1, description="Least diversity of a rollout: 0 (the paper), 0.1 (its code).")
    partition: Literal["all", "correct"] = Field(
        "all", description="Whom a rollout is compared with: all, or (for right ones) the right ones alone."
    )


class Darling(Objective):
    Config = DarlingConfig
    config: DarlingConfig
    needs = frozenset({"labels"})
    terms = "beside"

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.labels is not None
        assert group.degenerate is not None
        if self.config.partition == "correct":
            diversity = _among(group.rewards > 0, group.labels, group.degenerate)
        else:
            diversity = share_elsewhere(group.labels, group.degenerate)
        shaped = group.rewards * np.maximum(diversity, self.config.floor)
        out: Float64 = shaped - shaped.mean()
        return out


def share_elsewhere(labels: Int32, degenerate: Bool) -> Float64:
    """The share of the N - 1 other rollouts that have another strategy, float64 [N]; 0 for N = 1.

    Degenerate rollouts have no strategy: theirs is 0, and they do not count for others.
    """
    valid = ~degenerate
    other = (labels[:, None] != labels[None, :]) & valid[:, None] & valid[None, :]
    out: Float64 = other.sum(axis=1) / max(len(labels) - 1, 1)
    return out


def _among(correct: Bool, labels: Int32, degenerate: Bool) -> Float64:
    """Diversity within the right rollouts, float64 [N]; 0 for the others."""
    out = np.zeros(len(labels))
    out[correct] = share_elsewhere(labels[correct], degenerate[correct])
    if correct.sum() == 1:
        out[correct & ~degenerate] = 1.0
    return out
