"""How long the runs that are left will take, by those that are done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


class ExperimentETA:
    """Seconds of finished runs, by their steps."""

    def __init__(self) -> None:
        self._known: dict[int, list[float]] = {}

    def add(self, steps: int, seconds: float) -> None:
        self._known.setdefault(steps, []).append(seconds)

    def of(self, steps: int) -> float | None:
        """Seconds of a run of so many steps; by the nearest ones where none was as long, which is rough: an evaluation
        takes as long in a short run as in a long one. None before the first is done."""
        if not self._known:
            return None
        nearest = min(self._known, key=lambda known: abs(known - steps))
        return statistics.mean(self._known[nearest]) * max(steps, 1) / max(nearest, 1)

    def left(self, runs: Iterable[tuple[int, float]]) -> float | None:
        """Seconds that runs of (steps, seconds they have had) still take, one after the other."""
        estimates = [(self.of(steps), had) for steps, had in runs]
        if any(whole is None for whole, _ in estimates):
            return None
        return sum(max(0.0, (whole or 0.0) - had) for whole, had in estimates)
