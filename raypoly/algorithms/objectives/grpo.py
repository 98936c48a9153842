"""GRPO and Dr.GRPO: the advantage is the reward minus the group's mean.

A_i = (r_i - mean r) / (std r + eps), DeepSeekMath (arXiv 2402.03300), eq. of section 4.1; std "none" is
Dr.GRPO (arXiv 2503.20783), the baseline of the Poly-EPO study. Needs only rewards.
Known to go wrong: with few working strategies it collapses onto one; a group of equal rewards has no gradient.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
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


def compare_with_peers(values: Sequence[float] | Float64, peers: Sequence[Hashable], std: Deviation) -> Float64:
    """Each value less the mean of its peers, divided by their deviation as `relative` does; float64 [N], in the order
    of the values.

    `peers`: who is compared with whom, [N]; equal entries are peers, as two ("solve", 0) are. One that is alone gets 0.
    Raises `ValueError` where there are not as many as values.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.shape != (len(peers),):
        raise ValueError(f"each of {len(peers)} rollouts needs one value, got an array of shape {given.shape}")
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, peer in enumerate(peers):
        places[peer].append(place)
    out = np.zeros(len(peers))
    for members in places.values():
        out[members] = relative(given[members], std)
    return out
