"""Confidence intervals of a mean over problems.

    share_interval([1.0, 0.25, 1.0, ...])                     # pass@k of each problem: values between 0 and 1
    mean_interval([1.7, 0.0, 3.2, ...])                       # strategies in 8: values of 0 or more
    share_interval(values, clusters=problem_ids)              # several values a problem: problems are what is drawn
    mean_interval(values, strata=budgets)                     # problems drawn in fixed shares of each budget

The problems are taken as a sample of those that could have been asked. Near 0 and 1 a bootstrap over problems fails: at
a share of .97, 64 problems, its 95 % interval holds the truth in 85 % of experiments (percentiles), in 81 % (BCa), and
a t interval in 85 %. `share_interval` does in 96 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from raypoly.core.tables import DASH, number
from raypoly.core.values import Float64, Int64

QUANTILE = 0.975
"""Of Student's t, for intervals of 95 %."""
_FEW_MISSES = 4.0
"""Problems x share x (1 - share) below which the values' own spread is hardly known."""
_MOST_EFFECTIVE = 2.0
"""There, the most that a value between 0 and 1 may count, in values that are 0 or 1."""
_FEW_UNITS = 10
"""Units that differ from the others, below which their spread is hardly known."""


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float
    count: int
    """Independent units behind it: problems, or clusters."""

    def excludes(self, value: float) -> bool:
        """Whether `value` lies outside."""
        return not self.low <= value <= self.high


@dataclass(frozen=True)
class SampledMean:
    """A mean with the variance that drawing units gives it."""

    mean: float
    variance: float
    units: int
    df: float
    """Degrees of freedom of `variance`."""

    def t_interval(self) -> ConfidenceInterval:
        """Student's, of 95 %; without a degree of freedom it has no ends (they are infinite)."""
        reach = math.inf
        if self.df > 0:
            reach = float(special.stdtrit(self.df, QUANTILE)) * math.sqrt(self.variance)
        return ConfidenceInterval(self.mean, self.mean - reach, self.mean + reach, self.units)


def sampled_mean(
    values: Sequence[float] | Float64,
    clusters: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
) -> SampledMean:
    """The mean of `values` [n]; `clusters` [n] names each value's unit (default: each its own), `strata` [n] the part
    of the population that the unit was drawn from in a fixed share.

    The variance is that of a ratio of totals over units within strata (Cochran 1977, equations 5A.59 and 6.10). A
    stratum of one unit is merged with the others of one unit. Raises `ValueError` without values.
    """
    array = np.asarray(values, np.float64)
    if array.size == 0:
        raise ValueError("A mean needs one value at least.")
    mean = float(array.mean())
    totals = totals_by_unit(array - mean, clusters)
    of_unit = strata_by_unit(totals.size, clusters, strata)
    sizes = np.bincount(of_unit)
    means = np.bincount(of_unit, totals) / sizes
    squares = np.bincount(of_unit, (totals - means[of_unit]) ** 2)
    several = sizes > 1
    variance = float(np.sum(squares[several] * sizes[several] / (sizes[several] - 1))) / array.size**2
    return SampledMean(mean, variance, totals.size, float(np.sum(sizes[several] - 1)))


def with_floor(
    found: SampledMean, values: Sequence[float] | Float64, strata: Sequence[Hashable] | None = None
) -> SampledMean:
    """Where several of the `values` [n] behind the mean are alike within their strata and fewer than ten are not, their
    variance is hardly known: it gets what half a value more that is 1 higher and half a one that is 1 lower would add
    (Agresti & Min 2005 add such pairs). Those that are alone in their stratum share one, as in `sampled_mean`."""
    array = np.round(np.asarray(values, np.float64), 12)
    parts = strata_by_unit(array.size, strata=strata).tolist()
    commonest: dict[int, int] = {}
    for (part, _), count in Counter(zip(parts, array.tolist(), strict=True)).items():
        commonest[part] = max(count, commonest.get(part, 0))
    alike = sum(commonest.values())
    unseen = 1.0 / (array.size + 1) ** 2 if alike > len(commonest) and array.size - alike < _FEW_UNITS else 0.0
    return replace(found, variance=found.variance + unseen)


def mean_interval(
    values: Sequence[float] | Float64,
    clusters: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
) -> ConfidenceInterval:
    """Student's t over units, for values of 0 or more. As `sampled_mean` otherwise, `with_floor` where nearly all units
    are alike.

    Where some are 0 and fewer than `_FEW_UNITS` are not, the largest values may not have been seen: the interval is at
    least as wide as `share_interval`'s of values up to the largest, or to 1."""
    array = np.asarray(values, np.float64)
    found = sampled_mean(array, clusters, strata)
    units = totals_by_unit(array, clusters) / totals_by_unit(np.ones(array.size), clusters)
    interval = with_floor(found, units, strata_by_unit(units.size, clusters, strata).tolist()).t_interval()
    if math.isinf(interval.high):
        return interval
    low, high = interval.low, interval.high
    if np.count_nonzero(units) < min(_FEW_UNITS, units.size):
        largest = max(1.0, float(array.max()))
        share = share_interval(array / largest, clusters, strata)
        low, high = min(low, largest * share.low), max(high, largest * share.high)
    return replace(interval, low=max(low, 0.0), high=high)


def share_interval(
    values: Sequence[float] | Float64,
    clusters: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
    lowest: float = 0.0,
) -> ConfidenceInterval:
    """Wilson's interval (1927) for a mean of values in [`lowest`, 1], with an effective number of values.

    A share m of n values that are 0 or 1 has the variance m (1 - m) / n. So a mean m with the variance v counts as
    m (1 - m) / v such values (Kish 1965; Korn & Graubard 1998 for Wilson's form), with Student's t for the normal
    quantile. Where almost all values are at a bound, v is hardly known: below `_FEW_MISSES` a unit counts as two values
    at most, and where v is 0 as one. As `sampled_mean` otherwise. Raises `ValueError` for a value out of range.
    """
    array = (np.asarray(values, np.float64) - lowest) / (1 - lowest)
    if array.size and (array.min() < -1e-9 or array.max() > 1 + 1e-9):
        raise ValueError(
            f"A share lies between {lowest:g} and 1, not at {np.asarray(values)[np.argmax(abs(array - 0.5))]:g}."
        )
    found = sampled_mean(array, clusters, strata)
    share, units = min(max(found.mean, 0.0), 1.0), found.units
    spread = share * (1 - share)
    effective = float(units)
    if found.variance > 0 and spread > 0:
        most = units * _MOST_EFFECTIVE * max(1.0, units * spread / _FEW_MISSES) ** 2
        effective = min(spread / found.variance, most)
    t = float(special.stdtrit(found.df, QUANTILE)) if found.df > 0 else math.inf
    if math.isinf(t):
        return ConfidenceInterval(share * (1 - lowest) + lowest, lowest, 1.0, units)
    shrunk = 1 + t * t / effective
    centre = (share + t * t / (2 * effective)) / shrunk
    reach = t / shrunk * math.sqrt(spread / effective + (t / (2 * effective)) ** 2)
    low, mean, high = (lowest + (1 - lowest) * each for each in (centre - reach, share, centre + reach))
    return ConfidenceInterval(mean, max(low, lowest), min(high, 1.0), units)


def totals_by_unit(values: Sequence[float] | Float64, clusters: Sequence[Hashable] | None = None) -> Float64:
    """The sums of `values` [n] over the units that `clusters` [n] names, in the order of their first ones."""
    array = np.asarray(values, np.float64)
    return array if clusters is None else np.bincount(_numbered(clusters), array).astype(np.float64, copy=False)


def strata_by_unit(
    units: int, clusters: Sequence[Hashable] | None = None, strata: Sequence[Hashable] | None = None
) -> Int64:
    """The number of each unit's stratum, from 0, units in the order of `totals_by_unit`. Those that are alone in
    theirs share one; all do without `strata` [n]."""
    of_unit = np.zeros(units, np.int64)
    if strata is None:
        return of_unit
    of_unit[_numbered(clusters) if clusters is not None else slice(None)] = _numbered(strata)
    sizes = np.bincount(of_unit)
    of_unit[sizes[of_unit] == 1] = sizes.size
    return np.unique(of_unit, return_inverse=True)[1].astype(np.int64, copy=False)


def _numbered(names: Sequence[Hashable]) -> Int64:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)


def interval_text(interval: ConfidenceInterval, sign: str = "") -> str:
    """Its two ends, or a dash where it has none. `sign`: "+" shows that of a difference."""
    if not math.isfinite(interval.low):
        return DASH
    return f"[{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def mean_text(interval: ConfidenceInterval) -> str:
    """The mean, with its interval where that has two units behind it."""
    return f"{interval.mean:.3f} {interval_text(interval)}" if interval.count > 1 else number(interval.mean)
