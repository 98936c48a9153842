"""Power: the smallest difference that an experiment finds, and the size that finds a given one.

plan = ExperimentSize(problems=60, seeds=2, samples=64)
smallest_difference(plan, pilot)                 # found in 80 % of such experiments
fewest(0.05, "problems", plan, pilot)            # None where no number is enough
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import special

from raypoly.analysis.statistics.intervals import QUANTILE
from raypoly.analysis.statistics.paired_differences import PairedDifferences

Planned = Literal["problems", "seeds", "samples"]
CHANCE = 0.8
"""Of a 95 % interval that leaves out 0."""
_MOST = 10_000_000
# Probabilities over which the noncentral t is summed: SciPy's own fails far out.
_MIDPOINTS = (np.arange(2_000) + 0.5) / 2_000
_FEW_MIDPOINTS = (np.arange(48) + 0.5) / 48  # the same where two variances are estimated


@dataclass(frozen=True)
class DifferenceSpread:
    """Standard deviations of differences of two arms."""

    problems: float
    """Between problems, the same in every seed; within strata."""
    seeds: float
    """Between seeds, the same at every problem."""
    rest: float
    """Of a seed at a problem, beyond these two and the draw of samples."""
    samples: float | None = None
    """From one sample a problem; n samples add 1 / sqrt(n) of it. None: unknown, and part of the others."""

    @classmethod
    def of(cls, found: PairedDifferences, samples: int = 1, sampling: float | None = None) -> DifferenceSpread:
        """From a pilot's mean squares, none below 0. `sampling`: variance of a difference at one problem from drawing
        `samples` a problem; None: unknown. One seed gets `TYPICAL`'s spread of seeds."""
        over_problems, seeds = found.sampled.variance * found.sampled.units, len(found.by_seed)
        if seeds < 2 or not found.crossed:  # the rest can't be told from problems, and counts as theirs
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
"""Without a pilot: as two short runs of GRPO and Poly-EPO on puzzles; samples pass with a chance of .2 or .8."""


@dataclass(frozen=True)
class ExperimentSize:
    """Two arms over seeds, the two runs of a seed measured on the same problems."""

    problems: int
    """Of each seed."""
    seeds: int
    samples: int
    """Of each problem."""
    crossed: bool = True
    """Whether all seeds have the same problems."""


def power(difference: float, size: ExperimentSize, spread: DifferenceSpread) -> float:
    """Chance to find a true `difference` (noncentral t), over seeds and problems; with one seed over problems."""
    if size.crossed and size.seeds > 1 and size.problems > 1:
        return _crossed_power(abs(difference), size, spread)
    error, df = _standard_error(size, spread)
    t = float(special.stdtrit(df, QUANTILE))
    if error == 0:
        return float(difference != 0)
    shift = abs(difference) / error
    estimated = np.sqrt(special.chdtri(df, 1 - _MIDPOINTS) / df)  # standard errors in units of the true one
    found = special.ndtr(shift - t * estimated) + special.ndtr(-t * estimated - shift)
    return float(np.mean(found))


def _crossed_power(difference: float, size: ExperimentSize, spread: DifferenceSpread) -> float:
    # The degrees of freedom are Satterthwaite's and so depend on the estimates: average over what these may be.
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
    """The difference that is found with the chance `CHANCE`."""
    error, df = _standard_error(size, spread)
    low, high = 0.0, error * (float(special.stdtrit(df, QUANTILE)) + 20)
    while high - low > 1e-6 + 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, size, spread) >= CHANCE else (middle, high)
    return high


def fewest(difference: float, what: Planned, size: ExperimentSize, spread: DifferenceSpread) -> int | None:
    """The fewest `what`, from 2, that find `difference` with the chance `CHANCE`, else as in `size`; or None."""

    def enough(count: int) -> bool:
        changed: dict[str, Any] = {what: count}
        return power(difference, replace(size, **changed), spread) >= CHANCE

    return _fewest(enough)


def _standard_error(size: ExperimentSize, spread: DifferenceSpread) -> tuple[float, float]:
    """(standard error, degrees of freedom) of a mean difference, as `PairedDifferences` estimates it."""
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
    """Parts of a mean difference's variance: problems, seeds, the rest."""
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
