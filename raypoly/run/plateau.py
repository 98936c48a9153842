"""Early end of a run at a plateau of a measure (`train.stop`).

A plateau is reached after s steps, s >= 2 w, where the mean of the last w values less the mean of the w before them is
below `least_gain`. The rows of metrics.jsonl alone decide, so a run that was killed ends where it would have ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from raypoly.core.config import Config, StopSection
from raypoly.core.errors import UsageError


def stops_after(values: Sequence[float | None], window: int, least_gain: float) -> int | None:
    """The first number of steps that ends with a plateau; windows with an unknown value (None) decide nothing."""
    for steps in range(2 * window, len(values) + 1):
        before, last = values[steps - 2 * window : steps - window], values[steps - window : steps]
        known = [value for value in (*before, *last) if value is not None]
        if len(known) == 2 * window and math.fsum(known[window:]) - math.fsum(known[:window]) < least_gain * window:
            return steps
    return None


class Plateau:
    """The values of one run's measure. Without `train.stop.measure` there is no plateau."""

    def __init__(self, config: StopSection) -> None:
        self._config = config
        self._name = (config.measure or "").removeprefix("-")
        self._sign = -1.0 if (config.measure or "").startswith("-") else 1.0
        self._values: dict[int, float] = {}
        self._found: tuple[int, int | None] = (-1, None)  # known values at the last look, and the plateau found then

    def take(self, row: Mapping[str, Any]) -> None:
        """Note a step's row. Rows may come in any order, and more than once."""
        value = row.get(self._name)
        if _is_number(value):
            self._values[row["step"]] = self._sign * value

    def check(self, row: Mapping[str, Any]) -> None:
        """Raise `UsageError` where a row has no such measure at all."""
        if self._name and not (self._name in row and (row[self._name] is None or _is_number(row[self._name]))):
            numbers = ", ".join(sorted(name for name, value in row.items() if _is_number(value) and name != "step"))
            raise UsageError(
                f"train.stop.measure={self._config.measure} is no measure of a step: metrics.jsonl has {numbers}."
            )

    def ends_by(self, steps: int) -> bool:
        if not self._name:
            return False
        if self._found[0] != len(self._values):
            values = [self._values.get(step) for step in range(max(self._values, default=-1) + 1)]
            self._found = (len(self._values), stops_after(values, self._config.window, self._config.least_gain))
        return self._found[1] is not None and self._found[1] <= steps


def has_ended(config: Config, steps: int, rows: Callable[[], Iterable[Mapping[str, Any]]]) -> bool:
    """Whether a run has done train.steps or reached a plateau. `rows` reads metrics.jsonl, where that decides."""
    if steps >= config.train.steps or not config.train.stop.measure:
        return steps >= config.train.steps
    plateau = Plateau(config.train.stop)
    for row in rows():
        plateau.take(row)
    return plateau.ends_by(steps)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
