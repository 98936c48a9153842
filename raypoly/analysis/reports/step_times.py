"""The steps' time: a table and a waterfall of the mean step, and the waits of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from raypoly.analysis.reports import figures
from raypoly.core.tables import DASH

COLOURS: Mapping[str, str] = {
    "generate": figures.MIDDLE_BLUE,
    "score": figures.GREEN,
    "judge": figures.ORANGE,
    "cross": figures.PINK,
    "learn": figures.PURPLE,
    "sync": figures.DARK_BLUE,
    "idle": figures.GREY,
}
"""A colour for each thing that a step waits for, in the order in which a group meets it; not every run has all."""
_MOST_BARS = 60
"""With more steps than this, neighbouring steps share a bar, which shows their mean."""

Rows = Sequence[Mapping[str, Any]]


def time_rows(stage_seconds: Mapping[str, float], rows: Rows) -> list[tuple[str, str, str, str]]:
    """Stage, seconds at work, seconds that steps waited for it, and these as a share; all steps of the run together.

    A dash where rows of an earlier version did not say.
    """
    waited: Counter[str] = Counter()
    for row in _timed_rows(rows):
        waited.update(row["exposed"])
    total = sum(waited.values())
    names = [*COLOURS, *(name for name in stage_seconds if name not in COLOURS and name != "total")]
    shown = [(name, stage_seconds.get(name), waited.get(name)) for name in names]
    lines = [
        (name, _seconds(busy), _seconds(exposed), DASH if exposed is None or not total else f"{exposed / total:.1%}")
        for name, busy, exposed in shown
        if busy is not None or exposed is not None
    ]
    if "total" in stage_seconds:
        lines.append(("total", _seconds(stage_seconds["total"]), _seconds(total or None), ""))
    return lines


def tail_words(rows: Rows) -> str:
    """One sentence on the last group of a step; empty where nothing is known of it."""
    tails = [row["tail"] for row in rows if row.get("tail") and row["tail"].get("seconds") is not None]
    if not tails:
        return ""
    length, exposed = (sum(tail[key] for tail in tails) / len(tails) for key in ("seconds", "exposed"))
    return (
        f"In the mean step the last group had its labels {length:.2f} s after the end of generation; for "
        f"{exposed:.2f} s of that nothing hid scoring and judging."
    )


def step_time_panels(rows: Rows) -> list[figures.Panel]:
    """The mean step as a waterfall, and each step's stack of what it waited for; none without such rows."""
    timed = _timed_rows(rows)
    if not timed:
        return []
    return [
        figures.Panel("what the mean step waited for", partial(_mean_step, rows=timed)),
        figures.Panel("what each step waited for", partial(_over_steps, rows=timed)),
    ]


def _mean_step(axes: Axes, rows: Rows) -> None:
    """Draw a bar for each stage, beginning where the bar above it ends: together they are the step."""
    begin = 0.0
    stages = _stages(rows)
    for place, stage in enumerate(stages):
        exposed = _mean(rows, "exposed", stage)
        axes.barh(place, exposed, left=begin, color=COLOURS[stage])
        busy = "" if stage == "idle" else f", {_mean(rows, 'seconds', stage):.2f} at work"
        axes.annotate(f"{exposed:.2f} s{busy}", (begin + exposed, place), (4, 0), textcoords="offset points",
                      va="center", fontsize=8)  # fmt: skip
        begin += exposed
    axes.set_yticks(range(len(stages)), stages)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * begin or 1.0)
    axes.set(title="The mean step: what it waited for", xlabel="seconds")


def _over_steps(axes: Axes, rows: Rows) -> None:
    width = -(-len(rows) // _MOST_BARS)
    bins = [rows[i : i + width] for i in range(0, len(rows), width)]
    steps = [float(some[0]["step"]) for some in bins]
    floor = [0.0] * len(bins)
    stages = _stages(rows)
    for stage in stages:
        values = [_mean(some, "exposed", stage) for some in bins]
        axes.bar(steps, values, 0.9 * width, bottom=floor, color=COLOURS[stage], label=stage, align="edge")
        floor = [low + value for low, value in zip(floor, values, strict=True)]
    means = f" (means of {width} steps)" if width > 1 else ""
    axes.set(title=f"Steps: what they waited for{means}", ylabel="seconds")
    figures.steps_axis(axes)
    figures.legend_below(axes, 4)


def _stages(rows: Rows) -> list[str]:
    """The stages to draw; `cross` only where a step waited for it."""
    return [stage for stage in COLOURS if stage != "cross" or any(stage in row["exposed"] for row in rows)]


def _timed_rows(rows: Rows) -> Rows:
    """The rows that say what their step waited for."""
    return [row for row in rows if row.get("exposed")]


def _mean(rows: Rows, key: str, stage: str) -> float:
    return float(sum(row[key].get(stage, 0.0) for row in rows)) / len(rows)


def _seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:,.1f}"
