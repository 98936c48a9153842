"""What an experiment can show, before it runs: the smallest difference that it finds, and how large one finds another.

plan = ExperimentSize(problems=60, seeds=2, samples=64)
smallest_difference(plan, PILOT)                 # found in 80 % of such experiments
fewest(0.05, "problems", plan, PILOT)            # with as many seeds and samples; None where no number is enough
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import special, stats

from raypoly.analysis.statistics.intervals import QUANTILE
from raypoly.analysis.statistics.paired_differences import PairedDifferences

Planned = Literal["problems", "seeds", "samples"]
"""What an experiment may have more of."""
CHANCE = 0.8
"""To find a difference, which is where its 95 % interval leaves out 0."""
_MOST = 10_000_000
_MIDPOINTS = (np.arange(2_000) + 0.5) / 2_000
"""Of the probabilities over which the noncentral t is summed; SciPy's own fails far out."""
_FEW_MIDPOINTS = (np.arange(48) + 0.5) / 48
"""Where two variances are estimated: of the probabilities of each."""


@dataclass(frozen=True)
class DifferenceSpread:
    """How differences of two arms spread, as standard deviations."""

    problems: float
    """Of a problem's difference, the same in every seed; within strata, where the problems are drawn from some."""
    seeds: float
    """Of a seed's difference, the same at every problem."""
    rest: float
    """Of the rest: a seed's difference at one problem, beyond these two and what few samples add."""
    samples: float | None = None
    """Of what a single sample of each arm adds to a seed's difference at one problem; n samples add 1 / sqrt(n) of it.
    None where it is not known: then the others hold it."""

    @classmethod
    def of(cls, found: PairedDifferences, samples: int = 1, sampling: float | None = None) -> DifferenceSpread:
        """From a pilot, by the mean squares of its layout, none below 0. `sampling`: the variance of a seed's
        difference at one problem, [0, 1], that comes of drawing no more than `samples` a problem; None where it is not
        known.

        One seed does not tell how seeds spread: they get `TYPICAL`'s. With one seed, or problems of its own in each,
        what the rest adds can't be told from what problems add: it counts as theirs."""
        over_problems, seeds = found.sampled.variance * found.sampled.units, len(found.by_seed)
        if seeds < 2 or not found.crossed:
            few = min(sampling or 0.0, over_problems)
            of_samples = None if sampling is None else math.sqrt(few * samples)
            alone = cls(math.sqrt(over_problems - few), TYPICAL.seeds, 0.0, of_samples)
            if seeds < 2:
                return alone
            between = float(np.var(found.seed_means, ddof=1)) - over_problems * seeds / found.sampled.units
            return replace(alone, seeds=math.sqrt(max(between, 0)))
        table = np.stack(found.by_seed)
        problems = table.shape[1]
        of_seed, of_problem = table.mean(1, keepdims=True), table.mean(0, keepdims=True)
        rest = float(np.sum((table - of_seed - of_problem + table.mean()) ** 2)) / max(1, (seeds - 1) * (problems - 1))
        between_seeds = float(np.var(of_seed, ddof=1)) - rest / problems
        between_problems = over_problems - rest / seeds
        few = min(sampling or 0.0, rest)
        variances = (max(between_problems, 0), max(between_seeds, 0), rest - few)
        crossed = cls(*map(math.sqrt, variances))
        return crossed if sampling is None else replace(crossed, samples=math.sqrt(few * samples))


TYPICAL = DifferenceSpread(problems=0.3, seeds=0.02, rest=0.07, samples=0.57)
"""Where there is no pilot: two short runs, GRPO and Poly-EPO on puzzles; samples pass with a chance of .2 or .8."""


@dataclass(frozen=True)
class ExperimentSize:
    """Two arms, each run once with each seed, the two of a seed measured on the same problems."""

    problems: int
    """Of each seed."""
    seeds: int
    samples: int
    """Of each problem."""
    crossed: bool = True
    """Whether all seeds have the same problems; else each has so many of its own."""


def power(difference: float, size: ExperimentSize, spread: DifferenceSpread) -> float:
    """The chance to find a true `difference`, by the noncentral t distribution, over seeds and problems together; with
    one seed, over problems alone."""
    if size.crossed and size.seeds > 1 and size.problems > 1:
        return _crossed_power(abs(difference), size, spread)
    error, df = _standard_error(size, spread)
    t = float(stats.t.ppf(QUANTILE, df))
    if error == 0:
        return float(difference != 0)
    shift = abs(difference) / error
    estimated = np.sqrt(stats.chi2.ppf(_MIDPOINTS, df) / df)  # standard errors in units of the true one
    found = stats.norm.sf(t * estimated - shift) + stats.norm.cdf(-t * estimated - shift)
    return float(np.mean(found))


def _crossed_power(difference: float, size: ExperimentSize, spread: DifferenceSpread) -> float:
    """Over what an experiment may estimate the variances of problems and of seeds at, hence the degrees of freedom of
    its interval."""
    of_problems, of_seeds, rest = _variances(size, spread)
    true = math.sqrt(of_problems + of_seeds + rest)
    if true == 0:
        return float(difference != 0)
    estimated = [
        (variance + rest) * special.chdtri(units - 1, _FEW_MIDPOINTS) / (units - 1)
        for variance, units in ((of_problems, size.problems), (of_seeds, size.seeds))
    ]
    by_problems, by_seeds = estimated[0], estimated[1][:, None]
    variance = by_problems + by_seeds
    df = variance**2 / (by_problems**2 / (size.problems - 1) + by_seeds**2 / (size.seeds - 1))
    reach = special.stdtrit(df, QUANTILE) * np.sqrt(variance)
    found = special.ndtr((difference - reach) / true) + special.ndtr((-reach - difference) / true)
    return float(np.mean(found))


def smallest_difference(size: ExperimentSize, spread: DifferenceSpread) -> float:
    """The difference that is found with a chance of `CHANCE`."""
    error, df = _standard_error(size, spread)
    low, high = 0.0, error * (float(stats.t.ppf(QUANTILE, df)) + 20)
    while high - low > 1e-6 + 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, size, spread) >= CHANCE else (middle, high)
    return high


def fewest(difference: float, what: Planned, size: ExperimentSize, spread: DifferenceSpread) -> int | None:
    """The fewest `what` that find `difference` with a chance of `CHANCE`, all else as in `size`; 2 at least. None where
    no number does, since what does not become more differs too much."""

    def enough(count: int) -> bool:
        changed: dict[str, Any] = {what: count}
        return power(difference, replace(size, **changed), spread) >= CHANCE

    return _fewest(enough)


def _standard_error(size: ExperimentSize, spread: DifferenceSpread) -> tuple[float, float]:
    """Of a mean difference, as `PairedDifferences` estimates it on average, and its degrees of freedom."""
    of_problems, of_seeds, rest = _variances(size, spread)
    if size.seeds == 1 or size.problems == 1:
        return math.sqrt(of_problems + rest), max(1, size.problems - 1)
    if not size.crossed:
        return math.sqrt(of_problems / size.seeds + of_seeds + rest), size.seeds - 1
    of_problems, of_seeds = of_problems + rest, of_seeds + rest
    variance = of_problems + of_seeds
    if variance == 0:
        return 0.0, float(size.problems - 1)
    df = variance**2 / (of_problems**2 / (size.problems - 1) + of_seeds**2 / (size.seeds - 1))
    return math.sqrt(variance), df


def _variances(size: ExperimentSize, spread: DifferenceSpread) -> tuple[float, float, float]:
    """What problems, seeds and the rest add to that of a mean difference."""
    rest = spread.rest**2 + (spread.samples or 0.0) ** 2 / size.samples
    return spread.problems**2 / size.problems, spread.seeds**2 / size.seeds, rest / (size.seeds * size.problems)


def _fewest(enough: Callable[[int], bool]) -> int | None:
    low, high = 1, 2
    while not enough(high):
        if high >= _MOST:
            return None
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
