"""A group's distinct rewards as levels, for objectives of the best reward of a set.

max_G r = v_1 + sum over levels l > 1 of (v_l - v_{l-1}) * 1[some member of G reaches v_l], where v_1 < v_2 < ... are
the group's distinct rewards. So a mean over sets is a sum over levels: a level's rise times the chance that a draw
contains a rollout that reaches it. It takes O(N log N), and rollouts with equal rewards get equal bits.

`Levels` is of one group; `lifts` does the same for B groups at once, within each strategy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raypoly.algorithms.objectives.subset_draws import avoid, avoiding
from raypoly.core.values import Float64, Int32


@dataclass(frozen=True)
class Levels:
    """The L distinct rewards of N rollouts, ascending."""

    values: Float64
    """float64 [L]."""
    of: Int32
    """int32 [N]: the level of each rollout."""
    reach: Int32
    """int32 [L]: how many rollouts have this reward or more; N at the first level."""

    @classmethod
    def of_rewards(cls, rewards: Float64) -> Levels:
        values, of, counts = np.unique(rewards, return_inverse=True, return_counts=True)
        return cls(values, of.astype(np.int32), np.cumsum(counts[::-1])[::-1].astype(np.int32))

    @property
    def rises(self) -> Float64:
        """float64 [L-1]: from each level to the next."""
        return np.diff(self.values)

    def missed(self, among: int, draws: int, without_one: bool = False) -> Float64:
        """The chance that `draws` of `among` rollouts contain none that reaches a level, float64 [L-1] for the levels
        above the first. `without_one`: one of those that reach it is not among them."""
        return np.array([avoid(int(count) - without_one, among, draws) for count in self.reach[1:]])

    def best(self, k: int) -> float:
        """Mean of the best reward over all sets of k: pass@k for rewards of 0 and 1."""
        return float(self.values[0] + self.rises @ (1 - self.missed(len(self.of), k)))

    def best_beside(self, k: int) -> Float64:
        """Mean of the best reward over the sets of k with rollout i, float64 [N]."""
        lifted = self.rises * (1 - self.missed(len(self.of) - 1, k - 1))
        above = np.append(np.cumsum(lifted[::-1])[::-1], 0.0)
        out: Float64 = (self.values + above)[self.of]
        return out

    def best_without(self, k: int) -> Float64:
        """Mean of the best reward over the sets of k without rollout i, float64 [N]; k < N."""
        others = len(self.of) - 1
        lower = self.rises * (1 - self.missed(others, k, without_one=True))
        higher = self.rises * (1 - self.missed(others, k))
        up_to = np.append(0.0, np.cumsum(lower))
        above = np.append(np.cumsum(higher[::-1])[::-1], 0.0)
        out: Float64 = (self.values[0] + up_to + above)[self.of]
        return out

    def lift(self, k: int) -> Float64:
        """Mean, over the sets of k with rollout i, of the gain of their best reward by i, float64 [N]; k > 1."""
        alone = self.rises * self.missed(len(self.of) - 1, k - 1, without_one=True)
        out: Float64 = np.append(0.0, np.cumsum(alone))[self.of]
        return out

    def spread(self, k: int) -> float:
        """Standard deviation of the best reward over all sets of k."""
        chances = np.diff(np.concatenate(([0.0], self.missed(len(self.of), k), [1.0])))
        if np.count_nonzero(chances) == 1:
            return 0.0  # not the rounding of a mean
        return float(np.sqrt(chances @ (self.values - self.best(k)) ** 2))


def lifts(worth_BN: Float64, labels_BN: Int32, chances: Float64) -> Float64:
    """Sum over levels l up to i's own, of those of i's strategy, of (v_l - v_{l-1}) * chances[reach_l - 1], [B, N].

    `worth` is at least 0 and v_0 = 0; reach_l counts the rollouts of the strategy that are worth v_l or more. A rollout
    worth 0 gets 0. O(B N log N); nothing is added up beyond a strategy, so that a small sum keeps all its digits.
    """
    B, N = worth_BN.shape
    rows, D = np.arange(0, B * N, N)[:, None], np.arange(B * N)
    falling = np.argsort(-worth_BN, axis=1) + rows
    # Label and place in one number: sorting these keeps the falling order of worth within each strategy.
    key = labels_BN.ravel().take(falling).astype(np.int64) << 32 | np.arange(N)
    key.sort(axis=1)
    member = falling.ravel().take((key & 0xFFFFFFFF) + rows).ravel()
    label, worth = (key >> 32).ravel(), worth_BN.ravel().take(member)
    # All rows in one: a strategy ends where the label changes, and with its row.
    begins = np.ones(B * N + 1, dtype=np.bool_)
    np.not_equal(label[1:], label[:-1], out=begins[1:-1])
    begins[::N] = True
    ends = begins[1:]
    rank = D - np.maximum.accumulate(np.where(begins[:-1], D, 0))
    # In falling order a level's reach is the place of its last rollout; equals before it rise by 0.
    rise = worth.copy()
    rise[:-1] -= np.where(ends[:-1], 0.0, worth[1:])
    total = rise * chances.take(rank)
    step, deepest = 1, int(rank.max(initial=0, where=rise > 0))
    while step <= deepest:  # sums from each place to its strategy's end, by doubling
        total[:-step] += np.where(rank[step:] >= step, total[step:], 0.0)
        step *= 2
    # Equals take the sum of the last of them: sums that begin at other places may round otherwise.
    last = np.where((rise > 0) | ends, D, B * N)[::-1]
    out = np.empty(B * N)
    out[member] = total.take(np.minimum.accumulate(last)[::-1])
    return out.reshape(B, N)


def best_given_member(rewards_BN: Float64, n: int) -> Float64:
    """Mean of the best reward over the sets of n with rollout i, less what it is for the group's worst; [B, N]."""
    N = rewards_BN.shape[1]
    worth_BN = rewards_BN - rewards_BN.min(axis=1, keepdims=True)
    return lifts(worth_BN, np.zeros(rewards_BN.shape, dtype=np.int32), avoiding(N, N - 1, n - 1)[1:])
