"""Poly-EPO: a set of rollouts is worth its mean reward times the diversity of its strategies.

For a set G of n rollouts, f(G) = mean_{i in G} r_i * d(G), with d = |U|/n for the distinct non-degenerate
strategies U in G, and 0 where |U| <= 1 (the gate). A rollout's advantage sums f(G) - mean f over the sets that
contain it (arXiv 2604.17654; the code study's equations 1 to 3 and Algorithm 1).

All C(N, n) sets are taken exactly, in closed form. With i in G the other k = n-1 members are drawn from the
M = N-1 rest, so every term is a product of a reward sum and q(S; M, k) = C(M-S, k)/C(M, k), the chance that the
draw avoids S given members. The result depends on (strategy, reward) only; `tests` hold it against enumeration.

Needs labels. A degenerate rollout counts in n and in the mean reward, never in U. A run's groups come whole and
labelled; one passed in by hand may be smaller, and is refused from `set_size` rollouts down.

For problems with several working approaches, where coverage (pass@k) is worth some pass@1. Known to go wrong:

- A prompt whose rollouts share one strategy has no gradient, however mixed its rewards. `floor: eps` gives it one:
  f(G) = mean r * max(d, eps), where d is 0 for the sets that the gate closes, those of degenerates alone among them.
  With `reduction: unit`, a group of one strategy then has eps times GRPO's advantage. A floor above the smallest d of
  an open set (2/n; 1/n without the gate) would level sets that d tells apart, and is refused.
- A wrong novelty is paid and the right majority punished: six right loops, one right comprehension and one wrong
  recursion get -0.28 each, +1.09 and +0.59 (n=4, unit). With `diversity_of: correct`, U holds strategies of rollouts
  with a reward above 0 alone (a graded reward is correct however small it is): -0.19 each, +1.56 and -0.44.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from raypoly.errors import UsageError
from raypoly.objectives.base import Objective, ObjectiveConfig, ScoredGroup
from raypoly.objectives.draws import avoid
from raypoly.objectives.sets import Reduction, refuse_whole_group
from raypoly.values import Bool, Float64, Int32

Indices = np.ndarray[tuple[int, ...], np.dtype[np.intp]]


class PolyEPOConfig(ObjectiveConfig):
    set_size: int = Field(4, ge=1, description="Rollouts in a set (n); smaller than train.rollouts (N).")
    reduction: Reduction = Field(
        "sum",
        description="Over the sets that contain a rollout: `sum` (the paper), `mean`, or `unit`: "
        "sum * n / C(N-2, n-1), which equals GRPO's advantage times d where diversity d is constant.",
    )
    gate: bool = Field(True, description="d = 0 for sets with one strategy; off: d = |U|/n always.")
    floor: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Sets count with at least this diversity, max(d, floor), so that a group of one strategy learns; "
        "at most 2/set_size, 1/set_size without the gate. Empty: no floor.",
    )
    diversity_of: Literal["all", "correct"] = Field(
        "all", description="Whose strategies count as diversity: `correct` are rollouts with a reward above 0."
    )

    @field_validator("floor")
    @classmethod
    def _levels_nothing(cls, floor: float | None, info: ValidationInfo) -> float | None:
        if floor is not None and "set_size" in info.data and "gate" in info.data:
            open_sets = (2 if info.data["gate"] else 1) / info.data["set_size"]
            if floor > open_sets:
                raise ValueError(f"above {open_sets:g}, the least diversity that the gate lets through, it levels sets")
        return floor


class PolyEPO(Objective):
    Config = PolyEPOConfig
    config: PolyEPOConfig
    needs = frozenset({"labels"})

    def check(self, rollouts: int) -> None:
        refuse_whole_group(self.config.set_size, rollouts)

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.labels is not None
        assert group.degenerate is not None
        self.check(group.size)
        n = self.config.set_size
        outside = group.degenerate
        if self.config.diversity_of == "correct":
            outside = outside | (group.rewards <= 0)
        given = given_member(group.rewards, group.labels, outside, n, self.config.gate, self.config.floor)
        out: Float64 = (given - given.mean()) * _scale(group.size, n, self.config.reduction)
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


@dataclass(frozen=True)
class _Clusters:
    """Sizes and reward sums of a group's valid strategies; index -1 stands for the degenerates."""

    rewards: Float64
    of: Indices
    sizes: list[int]
    sums: Float64

    @cached_property
    def degenerate_sum(self) -> float:
        return float(self.rewards.sum() - self.sums.sum())

    @property
    def valid(self) -> int:
        return sum(self.sizes)


def _clusters(rewards: Float64, labels: Int32, degenerate: Bool) -> _Clusters:
    of = np.full(len(rewards), -1, dtype=np.intp)
    ids, index = np.unique(labels[~degenerate], return_inverse=True)
    of[~degenerate] = index
    sizes = np.bincount(index, minlength=len(ids)).tolist()
    sums = np.bincount(index, weights=rewards[~degenerate], minlength=len(ids)).astype(np.float64)
    return _Clusters(rewards, of, sizes, sums)


def given_member(
    rewards: Float64, labels: Int32, outside: Bool, n: int, gate: bool, floor: float | None = None
) -> Float64:
    """E[f(G) | i in G] for every rollout i over all sets of size n, float64 [N]; `outside` have no strategy."""
    clusters = _clusters(rewards, labels, outside)
    total = _each_strategy(clusters, n)
    closed = _only_strategy(clusters, n) if gate else None
    if closed is not None:
        total = total - closed
    if floor is not None:
        none = _no_strategy(clusters, n)
        total = total + n * floor * (none if closed is None else none + closed)
    return total / (n * n)


def _each_strategy(clusters: _Clusters, n: int) -> Float64:
    """E[(sum_{j in G} r_j) * |U(G)| | i in G], float64 [N]: a sum over strategies c of the chance to meet c."""
    M, k = len(clusters.rewards) - 1, n - 1
    r, R, p = clusters.rewards, clusters.rewards.sum(), (k / M if M else 0.0)
    meet = np.array([1.0 - avoid(m, M, k) for m in clusters.sizes])
    meet_beside = np.array([1.0 - avoid(m, M - 1, k - 1) for m in clusters.sizes])
    rest = R - r
    # Over all strategies as if i were outside each, then i's own strategy is taken out and put back as certain.
    own_meet, own_beside, own_sum = (np.append(x, 0.0)[clusters.of] for x in (meet, meet_beside, clusters.sums))
    others = r * (meet.sum() - own_meet) + p * (
        (clusters.sums.sum() - own_sum)
        + rest * (meet_beside.sum() - own_beside)
        - (clusters.sums @ meet_beside - own_sum * own_beside)
    )
    certain = np.where(clusters.of >= 0, r + p * rest, 0.0)
    out: Float64 = others + certain
    return out


def _only_strategy(clusters: _Clusters, n: int) -> Float64:
    """E[(sum_{j in G} r_j) * 1[|U(G)| = 1] | i in G], float64 [N]: what the gate takes away."""
    valid = clusters.valid
    any_strategy, own = np.zeros_like(clusters.rewards), np.zeros_like(clusters.rewards)
    for c, m in enumerate(clusters.sizes):
        value = _within(clusters, n, clusters.sums[c] + clusters.degenerate_sum, valid - m)
        any_strategy += value
        own = np.where(clusters.of == c, value, own)
    # A degenerate i may sit with any one strategy, but not with degenerates alone.
    alone = _within(clusters, n, clusters.degenerate_sum, valid)
    return np.where(clusters.of >= 0, own, any_strategy - len(clusters.sizes) * alone)


def _no_strategy(clusters: _Clusters, n: int) -> Float64:
    """E[(sum_{j in G} r_j) * 1[|U(G)| = 0] | i in G], float64 [N]: sets of degenerates alone."""
    return np.where(clusters.of < 0, _within(clusters, n, clusters.degenerate_sum, clusters.valid), 0.0)


def _within(clusters: _Clusters, n: int, allowed_sum: float, left_out: int) -> Float64:
    """E[(sum_{j in G} r_j) * 1[G within the allowed] | i in G] where i is allowed, float64 [N]: the allowed members sum
    to `allowed_sum` and leave `left_out` out."""
    M, k = len(clusters.rewards) - 1, n - 1
    r, p = clusters.rewards, (k / M if M else 0.0)
    return r * avoid(left_out, M, k) + p * (allowed_sum - r) * avoid(left_out, M - 1, k - 1)
