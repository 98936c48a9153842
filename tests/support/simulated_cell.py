"""One kind of random experiment, and how often what is looked for may happen in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raypoly.analysis.statistics.intervals import ConfidenceInterval

TOLERANCE = 2.6
"""Standard errors of the simulation by which a share may lie outside its bounds."""
PROBLEMS = (45, 64, 256)
SHARES = (0.5, 0.7, 0.97)
PARTS = (20, 19, 6, 19)
"""Of 64 puzzles, how many have each budget."""

Draw = Callable[[np.random.Generator], bool]


@dataclass(frozen=True)
class Found:
    """How often an event was seen."""

    share: float
    low: float
    high: float
    experiments: int

    @property
    def ok(self) -> bool:
        """Whether the share is within its bounds, but for the simulation's own error."""
        return self.low - self._slack(self.low) <= self.share <= self.high + self._slack(self.high)

    def _slack(self, bound: float) -> float:
        return TOLERANCE * math.sqrt(bound * (1 - bound) / self.experiments)


@dataclass(frozen=True)
class Cell:
    """One kind of experiment, and the bounds that the share of events has to keep."""

    name: str
    draw: Draw
    """One experiment: whether the interval holds the truth, or the test rejects."""
    low: float = 0.93
    high: float = 0.97

    def measured(self, experiments: int, rng: np.random.Generator) -> Found:
        share = float(np.mean([self.draw(rng) for _ in range(experiments)]))
        return Found(share, self.low, self.high, experiments)


def holds(interval: ConfidenceInterval, truth: float) -> bool:
    """Whether `interval` holds `truth`."""
    return not interval.excludes(truth)


def parts_of(problems: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The part of each problem: shares as `PARTS`."""
    ends = np.round(np.cumsum(PARTS) / sum(PARTS) * problems)
    return np.searchsorted(ends, np.arange(problems), side="right")
