"""Fisher's test of paired differences: under the hypothesis of none, each unit's sign is random."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from raypoly.analysis.statistics.intervals import strata_by_unit, totals_by_unit
from raypoly.core.values import Float64, Int64

_ZERO = 1e-12
_AT_ONCE = 2_000_000
"""Signs drawn at once: bounds the memory."""


@dataclass(frozen=True)
class SignsTest:
    """Two-sided."""

    p_value: float
    exact: bool
    """Whether all patterns of signs were counted."""


class _StudentsT:
    """t / sqrt(1 + t^2) of each sign pattern, which stays finite where no difference is left within strata."""

    def __init__(self, changed: Float64, strata: Int64, sizes: Int64) -> None:
        """`changed` [n] in `strata` [n], each of `sizes` units with those that did not change."""
        self._in_stratum = np.eye(sizes.size)[strata]
        self._sizes = sizes
        self._scale = sizes / np.maximum(sizes - 1, 1)
        self._squares = changed**2 @ self._in_stratum

    def __call__(self, one: Float64, other: Float64, axis: int) -> Float64:
        sums = np.moveaxis(one - other, axis, -1) @ self._in_stratum
        variance = np.sum(np.maximum(self._squares - sums**2 / self._sizes, 0) * self._scale, axis=-1)
        total = np.sum(sums, axis=-1)
        # rounding errors must not tell ties apart
        found: Float64 = np.round(total / np.sqrt(variance + total**2 + _ZERO**2), 12)
        return found


def signs_test(
    differences: Sequence[float] | Float64,
    clusters: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
    permutations: int = 9_999,
) -> SignsTest:
    """Twice the share of sign patterns whose t lies as far out on the observed one's side; at most 1. t is the mean
    difference over its standard error, as `sampled_mean` has it; without strata it orders patterns as the mean does.
    `clusters` [n] names the unit of each difference [n], whose sign is one (default: each its own).

    All patterns are counted where there are no more than `permutations`. Else so many are drawn, by a fixed seed, and
    the share is (1 + hits) / (1 + drawn), which is never 0 (Phipson & Smyth 2010).
    """
    totals = totals_by_unit(differences, clusters)
    of_unit = strata_by_unit(totals.size, clusters, strata)
    differs = np.abs(totals) > _ZERO
    changed = totals[differs]
    if changed.size < 2:  # both signs of one lie as far out
        return SignsTest(1.0, True)
    found = stats.permutation_test(
        (changed, np.zeros(changed.size)),
        _StudentsT(changed, of_unit[differs], np.bincount(of_unit)),
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=max(1, _AT_ONCE // changed.size),
        rng=np.random.default_rng(0),
    )
    return SignsTest(float(found.pvalue), 2 ** int(changed.size) <= permutations)
