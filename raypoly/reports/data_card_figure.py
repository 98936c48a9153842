"""The data card's figure: how many problems each stage left, passes of the samples, difficulty, prompt lengths."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BLUE, GREY, ORANGE = "#2171b5", "#bdbdbd", "#d95f02"
SPLITS: Mapping[str, str] = {"train": BLUE, "validation": ORANGE, "test": "#1b9e77"}


def figure(values: Mapping[str, Any]) -> bytes:
    """PNG of the card's numbers; a panel without data says so. The same numbers give the same bytes."""
    drawing = Figure(figsize=(13, 8.2), dpi=100, layout="constrained")
    FigureCanvasAgg(drawing)
    panels = drawing.subplots(2, 2)
    _stages(panels[0, 0], values)
    _passes(panels[0, 1], values)
    _difficulty(panels[1, 0], values)
    _tokens(panels[1, 1], values["prompt_tokens"])
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
    drawing.suptitle(str(values["name"]), fontsize=12)
    png = io.BytesIO()
    drawing.savefig(png, format="png", metadata={"Software": "raypoly"})
    return png.getvalue()


def _stages(axes: Axes, values: Mapping[str, Any]) -> None:
    rows = values["stages"][::-1]
    names, went_on, dropped = ([row[key] or 0 for row in rows] for key in ("stage", "went_on", "dropped"))
    axes.barh(names, went_on, color=BLUE, label="went on")
    axes.barh(names, dropped, left=went_on, color=GREY, label="left out")
    for place, row in enumerate(rows):
        axes.text(row["came"], place, f" {row['went_on']:,}", va="center", fontsize=8)
    axes.set(title="Problems after each stage", xlabel="problems")
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def _passes(axes: Axes, values: Mapping[str, Any]) -> None:
    known = {int(passes): count for passes, count in values["passes"].items() if passes != "unknown"}
    title = f"The base model's passes of {values['samples']} samples"
    if not known:
        _nothing(axes, title)
        return
    low, high = values["band"]
    xs = list(range(values["samples"] + 1))
    axes.bar(xs, [known.get(x, 0) for x in xs], color=[BLUE if low <= x <= high else GREY for x in xs])
    axes.set(title=f"{title} (kept: {low} to {high})", xlabel="passes", ylabel="problems")


def _difficulty(axes: Axes, values: Mapping[str, Any]) -> None:
    levels = values["levels"]
    below = [0] * len(levels)
    for name, counts in values["difficulty"].items():
        heights = [counts.get(level, 0) for level in levels]
        axes.bar(levels, heights, bottom=below, color=SPLITS[name], label=name)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(title="Difficulty of those that are kept", ylabel="problems")
    axes.legend(fontsize=8, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def _tokens(axes: Axes, tokens: Mapping[str, Any]) -> None:
    bins = tokens["histogram"]
    if not bins:
        _nothing(axes, "Tokens of the prompts")
        return
    names = [f"≤ {int(end):,}" for end in bins]
    axes.bar(names, list(bins.values()), color=[BLUE if int(end) <= tokens["limit"] else GREY for end in bins])
    axes.set(title=f"Tokens of the prompts (at most {tokens['limit']:,})", xlabel="tokens", ylabel="problems")


def _nothing(axes: Axes, title: str) -> None:
    axes.set(title=title, xticks=[], yticks=[])
    axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes, color="#999999")
