"""The agreement of two labellings of the same programs.

    adjusted_rand([7, 7, 7, 0], [1, 1, 2, 0])               # 1/3
    count_pairs([7, 7, 7, 0], [1, 1, 2, 0]).precision       # 1/3: of three pairs in one cluster, one is right

A labelling is N whole numbers: equal ones mean the same strategy, and 0 means degenerate. Each degenerate program is a
cluster of its own: left out, a judge could call every hard program degenerate at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from raypoly.core.values import Int32, Labels

Ids = Sequence[int] | Int32
LOWEST_ARI = -0.5
"""The adjusted Rand index of two partitions is never lower (Chacon & Rastrojo 2023)."""


@dataclass(frozen=True)
class PairCounts:
    """Pairs, or programs: `said` by a judge, `there` by the gold labels, `hits` by both. A ratio of nothing is None."""

    hits: int = 0
    said: int = 0
    there: int = 0

    def __add__(self, other: PairCounts) -> PairCounts:
        return PairCounts(self.hits + other.hits, self.said + other.said, self.there + other.there)

    @property
    def precision(self) -> float | None:
        return self.hits / self.said if self.said else None

    @property
    def recall(self) -> float | None:
        return self.hits / self.there if self.there else None

    @property
    def f1(self) -> float | None:
        """2 hits / (said + there), the harmonic mean of both."""
        return 2 * self.hits / (self.said + self.there) if self.said + self.there else None


def ids_of(labels: Labels) -> Int32:
    """int32 [N], 0 only for degenerate programs. Raises `ValueError` if a strategy is unknown."""
    if not labels.known:
        raise ValueError(f"{labels.judge} left a program without a strategy; only whole labellings can be compared.")
    return np.array(labels.strategies, np.int32)


def adjusted_rand(one: Ids, other: Ids) -> float:
    """The adjusted Rand index (Hubert & Arabie 1985, equation 5): 1 for equal partitions, 0 on average by chance.

    With n_ij the sizes of the overlaps, a_i and b_j those of the clusters, S, A and B the sums over i and j of
    C(n_ij, 2), C(a_i, 2) and C(b_j, 2), and T = C(N, 2):

        ARI = (S - A B / T) / ((A + B) / 2 - A B / T)

    The denominator is 0 only if both are one cluster or both are all singletons (or N < 2): equal, so 1. One cluster,
    or all singletons, against anything else is 0. Symmetric. Raises `ValueError` if lengths differ.
    """
    first, second = _together(one), _together(other, len(one))
    both, a, b = (_pairs_in(table) for table in (first & second, first, second))
    total = len(one) * (len(one) - 1) // 2
    denominator = (a + b) * total - 2 * a * b
    return 2 * (both * total - a * b) / denominator if denominator else 1.0


def count_pairs(said: Ids, gold: Ids) -> PairCounts:
    """Pairs of programs in one cluster. Low precision is over-merging, low recall over-splitting.

    Raises `ValueError` if lengths differ.
    """
    first, second = _together(said), _together(gold, len(said))
    return PairCounts(_pairs_in(first & second), _pairs_in(first), _pairs_in(second))


def count_degenerates(said: Ids, gold: Ids) -> PairCounts:
    """Programs labelled degenerate. Raises `ValueError` if lengths differ."""
    if len(said) != len(gold):
        raise ValueError(_lengths(len(said), len(gold)))
    first, second = np.asarray(said) == 0, np.asarray(gold) == 0
    return PairCounts(int(np.sum(first & second)), int(np.sum(first)), int(np.sum(second)))


def run_to_run(runs: Sequence[Ids]) -> float:
    """Mean adjusted Rand index over all pairs of runs on one group. Raises `ValueError` below two runs."""
    if len(runs) < 2:
        raise ValueError("Agreement from run to run needs two runs at least.")
    return float(np.mean([adjusted_rand(one, other) for one, other in combinations(runs, 2)]))


def _together(ids: Ids, length: int | None = None) -> NDArray[np.bool_]:
    """bool [N, N]: whether two programs share a cluster; a degenerate one is alone in its own."""
    array = np.asarray(ids, np.int64)
    if length is not None and len(array) != length:
        raise ValueError(_lengths(length, len(array)))
    table: NDArray[np.bool_] = (array[:, None] == array[None, :]) & (array[:, None] != 0)
    return table


def _pairs_in(table: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(np.triu(table, 1)))


def _lengths(one: int, other: int) -> str:
    return f"Two labellings of one group have the same length, not {one} and {other}."
