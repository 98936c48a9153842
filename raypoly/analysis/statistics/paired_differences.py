"""Paired differences of two arms, over problems and over seeds; Fisher's test by random signs, and Holm's adjustment.

    found = PairedDifferences.of(mine, theirs)           # [seeds][problems], the same problems in every seed
    found.over_problems()                                # these runs, other problems
    found.over_both()                                    # other seeds and other problems: claim with this one

With D[s, p] the difference of seed s at problem p, and B, W the mean squares between problems and between seeds, the
mean of all D has the variance sigma_p^2 / P + sigma_s^2 / S + sigma_e^2 / (S P). Its estimate (B + W) / (S P) counts
the rest twice, so on average it is not too small; degrees of freedom are Satterthwaite's (1946). With 3 seeds that
spread by .12 this t interval holds the truth in 92 % of experiments, a bootstrap over seeds and problems in 83 %.

Far out that t is too sure: there it gives p < .004 in 2 to 3 % of experiments without a difference. A p to be adjusted
for many tests is therefore Behrens and Fisher's (Fisher 1935).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from scipy import special

from raypoly.analysis.statistics.intervals import (
    ConfidenceInterval,
    SampledMean,
    sampled_mean,
    strata_by_unit,
    totals_by_unit,
    with_floor,
)
from raypoly.core.values import Float64, Int64

Key = TypeVar("Key", bound=Hashable)

_ZERO = 1e-12
_AT_ONCE = 2_000_000  # signs drawn at once, which bounds the memory
_STEPS = (np.arange(400) + 0.5) / 400
# Of the probabilities `_STEPS` ** 3: dense where a variance is far above its estimate.
_WEIGHTS = _STEPS**2 / np.sum(_STEPS**2)


@dataclass(frozen=True)
class TestedDifference:
    """A difference, its interval, and two-sided p-values of its being 0."""

    __test__ = False  # not a pytest class

    interval: ConfidenceInterval
    p_value: float
    df: float
    """Degrees of freedom of the interval."""
    family_p_value: float
    """To adjust for many tests; not below `p_value`."""


@dataclass(frozen=True)
class PairedDifferences:
    """Differences of one measure, a row for each seed."""

    by_seed: tuple[Float64, ...]
    """[problems] each."""
    crossed: bool
    """Whether all seeds have the same problems in the same order."""
    strata: tuple[tuple[Hashable, ...], ...] | None = None
    """[problems] each: the part in a fixed share that it was drawn from."""

    @classmethod
    def of(
        cls,
        mine: Sequence[Sequence[float] | Float64],
        theirs: Sequence[Sequence[float] | Float64],
        crossed: bool = True,
        strata: Sequence[Sequence[Hashable]] | None = None,
    ) -> PairedDifferences:
        """From values [seeds][problems] of both arms. Raises `ValueError` where a seed's problems do not match."""
        rows = []
        for one, other in zip(mine, theirs, strict=True):
            if len(one) != len(other) or not len(one):
                raise ValueError(f"A pair of runs needs the same problems, not {len(one)} and {len(other)}.")
            rows.append(np.asarray(one, np.float64) - np.asarray(other, np.float64))
        if crossed and len({len(row) for row in rows}) > 1:
            raise ValueError("Seeds with the same problems have equally many.")
        return cls(tuple(rows), crossed, None if strata is None else tuple(tuple(each) for each in strata))

    @property
    def mean(self) -> float:
        """Mean of the seeds' means."""
        return float(np.mean(self.seed_means))

    @property
    def seed_spread(self) -> float | None:
        """Standard deviation of the seeds' means; None for one seed."""
        return float(np.std(self.seed_means, ddof=1)) if len(self.by_seed) > 1 else None

    def over_problems(self, permutations: int = 9_999) -> TestedDifference:
        """For these runs and other problems: Student's t; p by `permutations` random signs, or t's where that is 0."""
        found = self.sampled
        p_value = _t_test(found)
        if permutations:
            values = self._by_problem
            p_value = signs_test(values, strata=self._strata_by_problem, permutations=permutations).p_value
        return TestedDifference(found.t_interval(), p_value, found.df, p_value)

    def over_both(self) -> TestedDifference | None:
        """For other seeds and other problems. None for one seed, and for one problem that all seeds have."""
        seeds, problems = len(self.by_seed), self.sampled
        if seeds < 2 or (self.crossed and not problems.df):
            return None
        between_seeds = float(np.var(self.seed_means, ddof=1)) / seeds
        if self.crossed:
            variance = between_seeds + problems.variance
            df = variance**2 / (between_seeds**2 / (seeds - 1) + problems.variance**2 / problems.df)
        else:  # the seeds' spread has that of their own problems already, but for what `with_floor` adds
            variance, df = between_seeds + problems.variance - self._sampled.variance, float(seeds - 1)
        found = SampledMean(self.mean, variance, seeds, df)
        p_value = family_p_value = _t_test(found)
        if self.crossed and between_seeds:
            family_p_value = max(p_value, _behrens_fisher(self.mean, between_seeds, seeds - 1, problems))
        return TestedDifference(found.t_interval(), p_value, df, family_p_value)

    @property
    def seed_means(self) -> list[float]:
        return [float(row.mean()) for row in self.by_seed]

    @property
    def _by_problem(self) -> Float64:
        """Mean over seeds of each problem; where seeds have their own problems, all of them."""
        return np.mean(self.by_seed, axis=0) if self.crossed else np.concatenate(self.by_seed)

    @property
    def _strata_by_problem(self) -> Sequence[Hashable] | None:
        if self.crossed:
            return None if self.strata is None else self.strata[0]
        # seeds are fixed here: with problems of its own each is a stratum
        parts = self.strata or tuple((None,) * len(row) for row in self.by_seed)
        return [(seed, part) for seed, row in enumerate(parts) for part in row]

    @property
    def sampled(self) -> SampledMean:
        """The mean with its variance over problems within strata; seeds are fixed."""
        return with_floor(self._sampled, self._by_problem, self._strata_by_problem)

    @property
    def _sampled(self) -> SampledMean:
        if self.crossed:
            return sampled_mean(self._by_problem, strata=self._strata_by_problem)
        parts = [
            sampled_mean(row, strata=None if self.strata is None else self.strata[seed])
            for seed, row in enumerate(self.by_seed)
        ]
        variance = math.fsum(part.variance for part in parts) / len(parts) ** 2
        return SampledMean(self.mean, variance, sum(p.units for p in parts), sum(p.df for p in parts))


def _t_test(found: SampledMean) -> float:
    if found.variance == 0:
        return 1.0 if found.mean == 0 else 0.0
    return float(2 * special.stdtr(found.df, -abs(found.mean) / math.sqrt(found.variance)))


def _behrens_fisher(mean: float, between_seeds: float, df: int, problems: SampledMean) -> float:
    """p of a mean whose variance is that of seeds, estimated with `df` degrees of freedom, and that of problems."""
    # Few seeds: average over what their variance may be. Many problems: the variance of their t is enough.
    over_problems = problems.variance * problems.df / max(problems.df - 2, 0.5)
    errors = np.sqrt(between_seeds / _shares_of_mean(df) + over_problems)
    return float(np.sum(2 * special.ndtr(-abs(mean) / errors) * _WEIGHTS))


@lru_cache(maxsize=64)
def _shares_of_mean(df: int) -> Float64:
    """Quantiles of estimate / variance, at the probabilities of `_WEIGHTS`."""
    return np.asarray(special.chdtri(df, 1 - _STEPS**3) / df, np.float64)


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
    from scipy import stats  # takes a second, which a run's own page does without

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
    from statsmodels.stats.multitest import multipletests  # brings scipy.stats, as above

    adjusted = multipletests(list(p_values.values()), method="holm")[1]
    return {key: float(value) for key, value in zip(p_values, adjusted, strict=True)}
