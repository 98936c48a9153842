"""Fisher's test of paired differences: under the hypothesis of none, each unit's sign is random."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from raypoly.statistics.intervals import totals_by_unit
from raypoly.values import Float64

_ZERO = 1e-12
_AT_ONCE = 2_000_000
"""Signs drawn at once: bounds the memory."""


@dataclass(frozen=True)
class SignsTest:
    """Two-sided."""

    p_value: float
    exact: bool
    """Whether all patterns of signs were counted."""


def signs_test(
    differences: Sequence[float] | Float64, clusters: Sequence[Hashable] | None = None, permutations: int = 9_999
) -> SignsTest:
    """Twice the share of sign patterns whose mean difference lies as far out on the observed one's side; at most 1.
    `clusters` [n] names the unit of each difference [n], whose sign is one (default: each its own).

    All patterns are counted where there are no more than `permutations`. Else so many are drawn, by a fixed seed, and
    the share is (1 + hits) / (1 + drawn), which is never 0 (Phipson & Smyth 2010).
    """
    totals = totals_by_unit(differences, clusters)
    changed = totals[np.abs(totals) > _ZERO]
    if changed.size < 2:  # both signs of one lie as far out
        return SignsTest(1.0, True)
    found = stats.permutation_test(
        (changed, np.zeros(changed.size)),
        lambda one, other, axis: np.mean(one - other, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=max(1, _AT_ONCE // changed.size),
        rng=np.random.default_rng(0),
    )
    return SignsTest(float(found.pvalue), 2 ** int(changed.size) <= permutations)
