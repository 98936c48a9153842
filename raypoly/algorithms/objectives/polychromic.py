"""The mean of f over the sets that contain a rollout, in closed form, for B groups of N rollouts at once.

    given_member(rewards_BN, labels_BN, outside_BN, n=4, require_two=True)      # E[f(G) | i in G], float64 [B, N]

f(G) = mean_{i in G} r_i * d(G) with d = |U|/n for the strategies U in G (`poly_epo.py`). With i in G the other k = n-1
members are drawn from the other M = N-1, so each term is a reward sum times q(S; M, k) = C(M-S, k)/C(M, k), the chance
that the draw avoids S given members. These depend only on a strategy's size: they come from a table, sums are over the
W strategies of a group, and no set is formed. Memory O(B (N + W)), time O(B N (1 + W)) with rollouts `outside`, else
O(B N log N).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raypoly.algorithms.objectives.subset_draws import avoiding
from raypoly.core.values import Bool, Float64, Int32, Int64


@dataclass(frozen=True)
class _Clusters:
    """Sizes and reward sums of each group's valid strategies, ascending by id. W is the largest number of a group.

    A group with fewer is padded with strategies of size 0. The last column, of zeros, is for rollouts without one.
    """

    rewards_BN: Float64
    outside_BN: Bool
    place_BN: Int64
    """The index of each rollout's strategy in the flattened [B, W+1]."""
    sizes_BV: Int64
    """int64 [B, W+1]."""
    sums_BV: Float64
    """float64 [B, W+1]."""

    valid_B1: Int64
    """The number of rollouts with a strategy."""

    @cached_property
    def own_size_BN(self) -> Int64:
        return self.sizes_BV.ravel()[self.place_BN]

    @cached_property
    def own_sum_BN(self) -> Float64:
        return self.sums_BV.ravel()[self.place_BN]

    @cached_property
    def total_B1(self) -> Float64:
        """The sum of a group's rewards."""
        out: Float64 = self.rewards_BN.sum(axis=1, keepdims=True)
        return out

    @cached_property
    def valid_sum_B1(self) -> Float64:
        out: Float64 = self.sums_BV[:, :-1].sum(axis=1, keepdims=True)
        return out

    @cached_property
    def outside_sum_B1(self) -> Float64:
        out: Float64 = self.total_B1 - self.valid_sum_B1
        return out


def _clusters(rewards_BN: Float64, labels_BN: Int32, outside_BN: Bool) -> _Clusters:
    B, N = rewards_BN.shape
    # Label and member in one number: sorting brings equal labels together and puts those outside last.
    ids = np.where(outside_BN, 1 << 31, labels_BN.astype(np.int64)).astype(np.uint64)
    key = ids << np.uint64(32) | np.arange(N, dtype=np.uint64)
    key.sort(axis=1)
    ids, member = key >> np.uint64(32), (key & np.uint64(0xFFFFFFFF)).astype(np.int64)
    new = np.ones((B, N), dtype=np.bool_)
    np.not_equal(ids[:, 1:], ids[:, :-1], out=new[:, 1:])
    count = np.cumsum(new.ravel()).reshape(B, N)
    of = np.empty(B * N, dtype=np.int64)
    row = np.arange(B)[:, None]
    of[member + row * N] = count - count[:, :1]
    of[outside_BN.ravel()] = -1
    W = 1 + int(of.max(initial=-1))
    of[outside_BN.ravel()] = W
    place = of.reshape(B, N) + row * (W + 1)
    sizes = np.bincount(place.ravel(), minlength=B * (W + 1)).reshape(B, W + 1)
    sums = np.bincount(place.ravel(), weights=rewards_BN.ravel(), minlength=B * (W + 1)).reshape(B, W + 1)
    valid: Int64 = N - sizes[:, W:]
    sizes[:, W], sums[:, W] = 0, 0.0
    return _Clusters(rewards_BN, outside_BN, place, sizes, sums.astype(np.float64, copy=False), valid)


def given_member(
    rewards_BN: Float64, labels_BN: Int32, outside_BN: Bool, n: int, require_two: bool, floor: float | None = None
) -> Float64:
    """E[f(G) | i in G] for every rollout i over all sets of size n, float64 [B, N]; `outside` have no strategy.

    `require_two`: f = 0 for sets of one strategy. `floor`: f(G) = mean r * max(d, floor). n is at most N, and N is at
    least 2.
    """
    clusters = _clusters(rewards_BN, labels_BN, outside_BN)
    total = _each_strategy(clusters, n)
    closed = _only_strategy(clusters, n) if require_two else None
    if closed is not None:
        total = total - closed
    if floor is not None:
        none = _no_strategy(clusters, n)
        total = total + n * floor * (none if closed is None else none + closed)
    return total / (n * n)


def _each_strategy(clusters: _Clusters, n: int) -> Float64:
    """E[(sum_{j in G} r_j) * |U(G)| | i in G], float64 [B, N]: a sum over strategies c of the chance to meet c."""
    r, p, q, q_beside = _draw(clusters, n)
    meet, meet_beside = 1.0 - q, 1.0 - q_beside
    sizes_BW, sums_BW = clusters.sizes_BV[:, :-1], clusters.sums_BV[:, :-1]
    meet_BW, beside_BW = meet[sizes_BW], meet_beside[sizes_BW]
    both_B1 = (sums_BW[:, None, :] @ beside_BW[:, :, None])[:, :, 0]
    rest, own_sum = clusters.total_B1 - r, clusters.own_sum_BN
    own_meet, own_beside = meet[clusters.own_size_BN], meet_beside[clusters.own_size_BN]
    # Over all strategies as if i were outside each, then i's own strategy is taken out and put back as certain.
    others = r * (meet_BW.sum(axis=1, keepdims=True) - own_meet) + p * (
        (clusters.valid_sum_B1 - own_sum)
        + rest * (beside_BW.sum(axis=1, keepdims=True) - own_beside)
        - (both_B1 - own_sum * own_beside)
    )
    out: Float64 = others + np.where(clusters.outside_BN, 0.0, r + p * rest)
    return out


def _only_strategy(clusters: _Clusters, n: int) -> Float64:
    """E[(sum_{j in G} r_j) * 1[|U(G)| = 1] | i in G], float64 [B, N]: the part that `require_two` removes."""
    r, p, q, q_beside = _draw(clusters, n)
    left_out = clusters.valid_B1 - clusters.own_size_BN
    out = _within(r, p, clusters.own_sum_BN + clusters.outside_sum_B1, q[left_out], q_beside[left_out])
    outside_D = np.flatnonzero(clusters.outside_BN)
    if len(outside_D):
        np.put(out, outside_D, _any_one(clusters, outside_D, n))
    return out


def _any_one(clusters: _Clusters, outside_D: Int64, n: int) -> Float64:
    """The same for the D rollouts outside, at these indices of the flattened [B, N], float64 [D]: each may be with any
    one strategy, but not only with others outside."""
    r, p, q, q_beside = _draw(clusters, n)
    r_D, row_D, V = r.ravel()[outside_D], outside_D // r.shape[1], clusters.sizes_BV.shape[1]
    there = clusters.sizes_BV > 0
    left_out = clusters.valid_B1 - clusters.sizes_BV
    q_BV, beside_BV = q[left_out] * there, q_beside[left_out] * there
    sums_BV = clusters.sums_BV + clusters.outside_sum_B1
    total = np.zeros_like(r_D)
    for c in range(V - 1):
        place = row_D * V + c
        total += _within(r_D, p, sums_BV.ravel()[place], q_BV.ravel()[place], beside_BV.ravel()[place])
    valid = clusters.valid_B1[row_D, 0]
    alone = _within(r_D, p, clusters.outside_sum_B1[row_D, 0], q[valid], q_beside[valid])
    out: Float64 = total - there.sum(axis=1)[row_D] * alone
    return out


def _no_strategy(clusters: _Clusters, n: int) -> Float64:
    """E[(sum_{j in G} r_j) * 1[|U(G)| = 0] | i in G], float64 [B, N]: sets of rollouts outside only."""
    r, p, q, q_beside = _draw(clusters, n)
    valid = clusters.valid_B1
    return np.where(clusters.outside_BN, _within(r, p, clusters.outside_sum_B1, q[valid], q_beside[valid]), 0.0)


def _draw(clusters: _Clusters, n: int) -> tuple[Float64, float, Float64, Float64]:
    """Rewards [B, N]; the chance k/M that another rollout is in G; q(S; M, k) and q(S; M-1, k-1) by S, to N."""
    N = clusters.rewards_BN.shape[1]
    M, k = N - 1, n - 1
    return clusters.rewards_BN, k / M, avoiding(N, M, k), avoiding(N, M - 1, k - 1)


def _within(r: Float64, p: float, allowed_sum: Float64, q: Float64, q_beside: Float64) -> Float64:
    """E[(sum_{j in G} r_j) * 1[G within the allowed] | i in G] for allowed i: the allowed members sum to `allowed_sum`,
    and the chances are those to avoid all others."""
    out: Float64 = r * q + p * (allowed_sum - r) * q_beside
    return out
