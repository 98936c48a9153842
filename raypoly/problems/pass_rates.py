"""How often each problem is solved, as far as a run has seen: what `problems.order=pass_rate` prefers problems by.

    rates = PassRates()
    rates.take(row)                  # the row of each completed step, in order
    rates.weight("two-sum")          # most where half of the rollouts pass

The state is a function of the rows of completed steps and of nothing else, and those are in the journal: a run that
goes on computes it again, and picks what it would have picked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from raypoly.values import Float64

PROBLEMS, PASSED, ROLLOUTS = "problems", "passed", "rollouts"
"""In a step's row, by slot: ids, and how many of `rollouts` passed, null where nobody knows."""
PASS = 1.0
"""A reward from which a rollout counts as passed."""
KEPT = 0.5
"""What earlier rollouts of a problem count for when it comes again: the policy has moved since."""
PRIOR = 0.5
"""Passes, and failures, that each problem begins with (Jeffreys 1946): one that was never sampled is at one half."""
FLOOR = 0.05
"""Of a weight of 1: what never or always passes comes again all the same, for that may change."""


class PassRates:
    """Counts by problem."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, float]] = {}
        self.taken = 0
        """Rows so far: what the rates say changes with it alone."""

    def take(self, row: Mapping[str, Any]) -> None:
        """Take in the row of a completed step; one of a run in another order says nothing."""
        self.taken += 1
        for problem, passed in zip(row.get(PROBLEMS, ()), row.get(PASSED, ()), strict=True):
            if passed is not None:
                passes, rollouts = self._counts.get(problem, (0.0, 0.0))
                self._counts[problem] = KEPT * passes + passed, KEPT * rollouts + row[ROLLOUTS]

    def rate(self, problem: str) -> float:
        """(passes + 1/2) / (rollouts + 1), of counts in which each earlier visit has half the weight."""
        passes, rollouts = self._counts.get(problem, (0.0, 0.0))
        return (passes + PRIOR) / (rollouts + 2 * PRIOR)

    def weight(self, problem: str) -> float:
        """4 p (1 - p), the variance of a rollout's reward on the scale of its largest, and the floor."""
        rate = self.rate(problem)
        return FLOOR + 4 * rate * (1 - rate)


def row_of(problems: Sequence[str], rewards: Sequence[Float64]) -> dict[str, Any]:
    """What the row of a step says for `take`; `rewards` are float64 [N] for each problem, NaN where unknown."""
    passed = [int(np.sum(r >= PASS)) if np.all(np.isfinite(r)) else None for r in rewards]
    return {PROBLEMS: list(problems), PASSED: passed, ROLLOUTS: len(rewards[0])}
