"""What the objective measured of the groups that it valued, over the steps: the rows' `objective/...` numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raypoly.metrics.sinks import MEASURES
from raypoly.reports.run_figure import SMOOTHING
from raypoly.reports.run_table import number

HEAD = ("", f"first {SMOOTHING} steps", f"last {SMOOTHING} steps", "least", "most")


def measure_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Name, mean of the first and of the last steps that have it, least and most of any step; none where nothing was
    measured."""
    names = sorted({key for row in rows for key in row if key.startswith(MEASURES)})
    return [
        _line(name.removeprefix(MEASURES), [row[name] for row in rows if row.get(name) is not None]) for name in names
    ]


def _line(name: str, values: Sequence[float]) -> tuple[str, ...]:
    if not values:
        return (name, *[number(None)] * (len(HEAD) - 1))
    first, last = values[:SMOOTHING], values[-SMOOTHING:]
    return (name, *map(number, (sum(first) / len(first), sum(last) / len(last), min(values), max(values))))
