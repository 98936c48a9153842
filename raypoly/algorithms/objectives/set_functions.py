"""Set objectives: a rollout's advantage comes from the sets that contain it, for any function f of a set.

    class BestOfSet(SetObjective):
        def score(self, sets: Sets) -> Float64:
            return sets.rewards_Kn.max(axis=1)

    BestOfSet(SetConfig(set_size=2)).advantages(rewards=[1, 0, 0, 0])

A_i = mean of f(G) over the sets G with i, minus a baseline (set RL, arXiv 2604.17654): the mean of f over all sets
(`mean`), or over those without i (`leave_one_out`). With n=1 and f = reward these are Dr.GRPO and RLOO. Over all sets
the second is N/(N-n) times the first, and its gradient is N/n times that of E f; that of the first is N/n - 1 times.

Up to a million sets (with at most 2^24 members) all C(N, n) are used. Beyond that, or with `sets: K`, K sets are drawn
uniformly without replacement. The draw's seed depends on `seed` and the group's numbers: the same group always gets the
same sets. A rollout in no drawn set has advantage 0; with `leave_one_out`, so has one in every set.

Write a closed form if there is one (`ClosedFormObjective`), as `poly_epo.py` does: a million sets take a second. A
run's groups are whole, and labelled if `needs` has "labels". A group of at most n rollouts is refused.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from raypoly.algorithms.objectives.objective import Objective, ObjectiveConfig, ScoredGroup, finite, labelled
from raypoly.algorithms.objectives.subset_draws import MOST_PLACES, MOST_SETS, all_sets, few_enough, some_sets
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Bool, Float64, Int32

Values = TypeVar("Values", Int32, Bool)
Baseline = Literal["mean", "leave_one_out"]
Reduction = Literal["sum", "mean", "unit"]

_SETS = 10_000
"""Sets that are drawn if there are too many to use all."""
_SCORED_PLACES = 2**20
"""Members of the sets that are scored at once, which bounds a group's memory."""


class SetConfig(ObjectiveConfig):
    set_size: int = Field(4, ge=1, description="Rollouts in a set (n); smaller than train.rollouts (N).")
    sets: int | None = Field(
        None,
        ge=1,
        le=MOST_SETS,
        description="Sets to draw (K), without replacement. Empty: all, or 10,000 where there are above a million.",
    )
    seed: int = Field(0, description="Seed of the draw, beside the group's own rewards and labels.")
    baseline: Baseline = Field(
        "mean", description="What a set is compared with: the `mean` set, or those without the rollout."
    )
    reduction: Reduction = Field(
        "sum",
        description="Over the sets that contain a rollout: `sum` (the paper), `mean`, or `unit`: scaled so that "
        "f = mean reward gives Dr.GRPO's advantage (RLOO's with leave_one_out).",
    )


@dataclass(frozen=True)
class Sets:
    """K sets of n rollouts: the input of a set function."""

    rewards_Kn: Float64
    labels_Kn: Int32 | None
    """Strategy ids, arbitrary for degenerate rollouts. None if the objective does not need labels."""
    degenerate_Kn: Bool | None
    lengths_Kn: Int32 | None
    """Response tokens; None if not given."""

    def strategies(self, of: Bool | None = None) -> Int32:
        """The number of strategies in each set, int32 [K]: of rollouts that are not degenerate, and in `of` [K, n]."""
        assert self.labels_Kn is not None
        assert self.degenerate_Kn is not None
        none = np.iinfo(np.int32).min
        counted = ~self.degenerate_Kn if of is None else ~self.degenerate_Kn & of
        ids = np.sort(np.where(counted, self.labels_Kn, none), axis=1)
        new = np.diff(ids, axis=1, prepend=none) != 0
        found: Int32 = np.count_nonzero(new, axis=1).astype(np.int32)
        return found


class SetObjective(Objective):
    """An objective made of a set function. Subclasses write `score`, and list labels in `needs` if it reads them."""

    Config = SetConfig
    config: SetConfig
    terms = "beside"

    @abstractmethod
    def score(self, sets: Sets) -> Float64:
        """f of each set, K finite numbers. K differs from call to call; the order within a set is arbitrary."""

    def check(self, rollouts: int) -> None:
        n, sets = self.config.set_size, self.config.sets
        refuse_whole_group(n, rollouts)
        if sets is not None and sets * n > MOST_PLACES:
            raise UsageError(f"objective.sets={sets} sets of {n} are too many to hold: at most {MOST_PLACES // n}.")

    def scale(self, rollouts: int) -> float:
        """For `sum` the (expected) number of used sets with a rollout; about 1 for others."""
        N, n = rollouts, self.config.set_size
        if self.config.reduction != "sum":
            return 1.0
        sets = math.comb(N, n) if self.config.sets is None and few_enough(N, n) else self.config.sets or _SETS
        return max(1.0, min(sets, math.comb(N, n)) * n / N)

    def compute(self, group: ScoredGroup) -> Float64:
        self.check(group.size)
        sets_Kn = self._choose(group)
        scores = np.concatenate([self._score(group, part) for part in _parts(sets_Kn)])
        return marginal(scores, sets_Kn, group.size, self.config.baseline, self.config.reduction)

    def _choose(self, group: ScoredGroup) -> Int32:
        N, n, K = group.size, self.config.set_size, self.config.sets
        if K is None:
            if few_enough(N, n):
                return all_sets(N, n)
            K = min(_SETS, MOST_PLACES // n)
        return some_sets(N, n, K, seed_of(group, self.config.seed))

    def _score(self, group: ScoredGroup, sets_Kn: Int32) -> Float64:
        sets = Sets(
            group.rewards[sets_Kn],
            _at(group.labels, sets_Kn),
            _at(group.degenerate, sets_Kn),
            _at(group.lengths, sets_Kn),
        )
        scores = np.asarray(self.score(sets), dtype=np.float64)
        if scores.shape != (len(sets_Kn),) or not np.all(np.isfinite(scores)):
            raise ValueError(f"{type(self).__name__}.score must give {len(sets_Kn)} finite numbers, gave {scores!r}")
        return scores


class ClosedFormObjective(Objective):
    """An objective over all sets of labelled rollouts in closed form, of one group or of many at once."""

    needs = frozenset({"labels"})
    terms = "beside"

    @abstractmethod
    def compute_groups(self, rewards_BN: Float64, labels_BN: Int32, degenerate_BN: Bool) -> Float64:
        """Advantages, float64 [B, N], of B groups of N. Raises `UsageError` if it can't work with N."""

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.labels is not None
        assert group.degenerate is not None
        out: Float64 = self.compute_groups(group.rewards[None], group.labels[None], group.degenerate[None])[0]
        return out

    def batch(self, *, rewards: ArrayLike, labels: ArrayLike, degenerate: ArrayLike | None = None) -> Float64:
        """Advantages, float64 [B, N], of B groups of N at once: rewards and labels are [B, N], the rest is as with
        `advantages`. Some microseconds a group, where one alone takes some tenths of a millisecond."""
        r_BN = finite(rewards, axes=2)
        ids, mask = labelled(labels, degenerate, self.config.degenerate_ids, r_BN.shape)
        return self.compute_groups(r_BN, ids, mask)


def refuse_whole_group(set_size: int, rollouts: int, key: str = "set_size") -> None:
    """Raise `UsageError` if a set would be as large as the group."""
    if set_size >= rollouts:
        raise UsageError(
            f"objective.{key}={set_size} must be smaller than train.rollouts={rollouts}: "
            "with one set of all rollouts every advantage is zero."
        )


def seed_of(group: ScoredGroup, seed: int) -> int:
    """The seed of this group's draws: equal for the same rewards and labels in the same order."""
    digest = hashlib.sha256()
    for values in (group.rewards, group.labels, group.degenerate):
        digest.update(b"" if values is None else values.tobytes())
    return derive(seed, "sets", digest.hexdigest())


def marginal(scores: Float64, sets_Kn: Int32, N: int, baseline: Baseline, reduction: Reduction) -> Float64:
    """The mean of the scores [K] of each rollout's sets minus a baseline, then scaled; float64 [N].

    With the `mean` baseline, `sum` adds to zero over the rollouts for any given sets, `mean` and `unit` for all sets.
    """
    K, n = sets_Kn.shape
    above = scores - scores[0]  # equal scores leave zeros, not rounding errors
    held, total = np.zeros(N), np.zeros(N)
    for start, part in zip(range(0, K, _chunk(n)), _parts(sets_Kn), strict=True):
        members = part.ravel()
        held += np.bincount(members, minlength=N)
        total += np.bincount(members, weights=np.repeat(above[start : start + len(part)], n), minlength=N)
    compared = held > 0
    if baseline == "mean":
        base = np.full(N, above.mean())
    else:
        compared &= held < K
        base = (above.sum() - total) / np.maximum(K - held, 1)
    means = np.where(compared, total / np.maximum(held, 1) - base, 0.0)
    if reduction == "mean":
        return means
    unit = n * (N - 1) / (N - n) if baseline == "mean" else n
    out: Float64 = means * (held if reduction == "sum" else unit)
    return out


def _at(values: Values | None, sets_Kn: Int32) -> Values | None:
    if values is None:
        return None
    found: Values = values[sets_Kn]
    return found


def _chunk(n: int) -> int:
    return max(1, _SCORED_PLACES // n)


def _parts(sets_Kn: Int32) -> list[Int32]:
    chunk = _chunk(sets_Kn.shape[1])
    return [sets_Kn[start : start + chunk] for start in range(0, len(sets_Kn), chunk)]
