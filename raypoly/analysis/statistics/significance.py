"""Fisher's test of paired differences by random signs, and Holm's adjustment of p-values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from raypoly.analysis.statistics.intervals import strata_by_unit, totals_by_unit
from raypoly.core.values import Float64, Int64

Key = TypeVar("Key", bound=Hashable)

_ZERO = 1e-12
_AT_ONCE = 2_000_000  # signs drawn at once, which bounds the memory


@dataclass(frozen=True)
class SignsTest:
    p_value: float
    """Two-sided."""
    exact: bool
    """Whether all sign patterns were counted."""


class _StudentsT:
    """t / sqrt(1 + t^2) of each sign pattern: finite where nothing differs within strata."""

    def __init__(self, changed: Float64, strata: Int64, sizes: Int64) -> None:
        """`changed` [n] in `strata` [n]; `sizes`: units of each stratum, unchanged ones too."""
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
    """Twice the share of sign patterns whose t is as far out on the observed side; at most 1.

    `differences` [n], `clusters` [n] and `strata` [n] as `sampled_mean`; a unit has one sign. Up to `permutations`
    patterns are all counted; else so many are drawn by a fixed seed: (1 + hits) / (1 + drawn), never 0 (Phipson &
    Smyth 2010).
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


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """p-values adjusted for all of them (Holm 1979): a true hypothesis falls below .05 in 5 % of tables at most."""
    if not p_values:
        return {}
    adjusted = multipletests(list(p_values.values()), method="holm")[1]
    return {key: float(value) for key, value in zip(p_values, adjusted, strict=True)}
