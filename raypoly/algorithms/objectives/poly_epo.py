"""Poly-EPO: the value of a set of rollouts is its mean reward times the diversity of its strategies.

For a set G of n rollouts, f(G) = mean_{i in G} r_i * d(G), with d = |U|/n for the distinct non-degenerate
strategies U in G, and 0 for |U| <= 1 (`require_two`). A rollout's advantage sums f(G) - mean f over the sets that
contain it (arXiv 2604.17654; the code study's equations 1 to 3 and Algorithm 1).

The sum over all C(N, n) sets is exact, in closed form (`polychromic.py`); tests compare it with enumeration. `batch`
takes many groups at once.

`blend: b` (not in the paper) values a set at (1 - b) mean r * d(G) + b max r, so that b is the share of max@n, which
PKPO is for: a group of one strategy learns, unless fewer than n of its rollouts are wrong.

Needs labels. A degenerate rollout counts in n and in the mean reward, never in U. A run's groups are whole and
labelled. A group of at most `set_size` rollouts is refused.

When: problems with several working approaches, and coverage (pass@k) is worth some pass@1. Known to go wrong:

- A prompt whose rollouts share one strategy has no gradient, however mixed its rewards. `floor: eps` gives it one:
  f(G) = mean r * max(d, eps), where d is 0 for sets that `require_two` closes, also those of degenerate rollouts only.
  With `reduction: unit`, a group of one strategy then has eps times GRPO's advantage. A floor above the smallest d of
  an open set (2/n; 1/n without `require_two`) would give sets of different d the same value, and is refused.
- Wrong novelty is paid and the right majority punished: six right loops, one right comprehension and one wrong
  recursion get -0.28 each, +1.09 and +0.59 (n=4, unit). With `diversity_of: correct`, U holds strategies of rollouts
  with a reward above 0 only (any graded reward above 0 is correct): -0.19 each, +1.56 and -0.44.
- So its fixed point keeps wrong rollouts. Of four right loops, two right whiles, a wrong table and a broken program
  that is no attempt, the wrong one gets +1.125, a right loop -0.4375 (n=4, sum). A policy of s equally likely right
  strategies and one wrong one comes to rest, for n=4, with 37 % wrong samples for s=1, 10 % for s=2 and none for s=3;
  with `blend: 0.5` 32 %, 10 % and none. With `strategy_coverage` none remain for any s.
- It weighs problems by pass rate as GRPO does not: a solved one moves the policy most. RMS advantage at pass rate 1/16,
  1/4, 3/4 and 31/32 relative to 1/2 (N=8, n=4, three strategies of chance .6, .3 and .1 whatever the reward): .38, .74,
  1.16, 1.25; GRPO .48, .87, .87, .35; PKPO (k=4) 1.47, 1.75, .28, .01; `strategy_coverage` .57, .93, .95, .89.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from raypoly.algorithms.objectives.levels import best_given_member
from raypoly.algorithms.objectives.objective import ObjectiveConfig
from raypoly.algorithms.objectives.polychromic import given_member
from raypoly.algorithms.objectives.set_functions import ClosedFormObjective, Reduction, refuse_whole_group
from raypoly.core.errors import UsageError
from raypoly.core.values import Bool, Float64, Int32


class PolyEPOConfig(ObjectiveConfig):
    set_size: int = Field(4, ge=1, description="Rollouts in a set (n); smaller than train.rollouts (N).")
    reduction: Reduction = Field(
        "sum",
        description="Over the sets that contain a rollout: `sum` (the paper), `mean`, or `unit`: "
        "sum * n / C(N-2, n-1), which equals GRPO's advantage times d where diversity d is constant.",
    )
    require_two: bool = Field(True, description="d = 0 for sets with one strategy; off: d = |U|/n always.")
    floor: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Sets count with at least this diversity, max(d, floor), so that a group of one strategy learns; "
        "at most 2/set_size, 1/set_size without require_two. Empty: no floor.",
    )
    diversity_of: Literal["all", "correct"] = Field(
        "all", description="Whose strategies count as diversity: `correct` are rollouts with a reward above 0."
    )
    blend: float = Field(
        0.0,
        ge=0,
        le=1,
        description="How much of a set's value is its best reward: (1 - blend) * mean r * d + blend * max r.",
    )

    @field_validator("floor")
    @classmethod
    def _levels_nothing(cls, floor: float | None, info: ValidationInfo) -> float | None:
        if floor is not None and "set_size" in info.data and "require_two" in info.data:
            open_sets = (2 if info.data["require_two"] else 1) / info.data["set_size"]
            if floor > open_sets:
                raise ValueError(
                    f"above {open_sets:g}, the least diversity that require_two lets through, it levels sets"
                )
        return floor


class PolyEPO(ClosedFormObjective):
    Config = PolyEPOConfig
    config: PolyEPOConfig

    def check(self, rollouts: int) -> None:
        refuse_whole_group(self.config.set_size, rollouts)

    def scale(self, rollouts: int) -> float:
        return _scale(rollouts, self.config.set_size, self.config.reduction)

    def compute_groups(self, rewards_BN: Float64, labels_BN: Int32, degenerate_BN: Bool) -> Float64:
        N, n = rewards_BN.shape[1], self.config.set_size
        self.check(N)
        outside = degenerate_BN
        if self.config.diversity_of == "correct":
            outside = outside | (rewards_BN <= 0)
        given = given_member(rewards_BN, labels_BN, outside, n, self.config.require_two, self.config.floor)
        if blend := self.config.blend:
            given = (1 - blend) * given + blend * best_given_member(rewards_BN, n)
        out: Float64 = (given - given.mean(axis=1, keepdims=True)) * _scale(N, n, self.config.reduction)
        return out


def _scale(N: int, n: int, reduction: Reduction) -> float:
    """What the mean over the C(N-1, n-1) sets of a rollout is multiplied by, last of all so that nothing overflows."""
    if reduction == "mean":
        return 1.0
    if reduction == "unit":
        return n * (N - 1) / (N - n)
    try:
        return float(math.comb(N - 1, n - 1))
    except OverflowError as error:
        raise UsageError(f"objective.reduction=sum has no finite scale at N={N}, n={n}: use mean or unit.") from error
