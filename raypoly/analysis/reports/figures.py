"""Figures: their colours, axes and legends, and how they become PNG files.

drawing = new_figure(13, 8.2, dpi=100)
panels = drawing.subplots(2, 2)
...
clean_axes(panels.flat)
data = png_of(drawing)
png, numbers = drawn(Panel("reward over the steps", draw))      # one panel alone, and its numbers
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from raypoly.core.tables import ReportTable

MIDDLE_BLUE, BLUE, DARK_BLUE = "#4292c6", "#2171b5", "#08306b"
ORANGE, GREEN, PURPLE, PINK = "#d95f02", "#1b9e77", "#7570b3", "#e7298a"
GREY, LIGHT_GREY = "#999999", "#bdbdbd"
SMOOTHING = 5
"""Steps in the running mean of noisy per-step curves."""


@dataclass(frozen=True)
class Panel:
    """One chart, which any axes can take."""

    shows: str
    """Said to who can't see it."""
    draw: Callable[[Axes], None]


def drawn(panel: Panel) -> tuple[bytes, ReportTable]:
    """The panel alone as PNG, and its numbers as a table."""
    drawing = new_figure(5.4, 4.9, dpi=130)
    axes = drawing.subplots()
    panel.draw(axes)
    clean_axes([axes], grid=True)
    if axes.get_legend() is not None:
        longest = max(map(len, axes.get_legend_handles_labels()[1]))
        legend_below(axes, columns=2 if longest < 32 else 1)  # there is no neighbour to make room
    return png_of(drawing), numbers_table(axes)


def numbers_table(axes: Axes) -> ReportTable:
    """What was drawn on the axes and on others of its figure: a column for each line and each kind of bar that has a
    label, or a gid where it has no entry in the legend; a row for each place on the horizontal axis."""
    series: dict[str, dict[float, float]] = {}
    for each in axes.figure.axes:
        line: Any
        for line in each.lines:
            points = zip(line.get_xdata(), line.get_ydata(), strict=True)
            series.setdefault(line.get_gid() or line.get_label(), {}).update(points)
        bars: Any
        for bars in filter(_are_upright, each.containers):
            points = zip((patch.get_x() for patch in bars.patches), bars.datavalues, strict=True)
            series.setdefault(bars.get_label(), {}).update(points)
    known = {name: points for name, points in series.items() if points and not name.startswith("_")}
    places = sorted({place for points in known.values() for place in points})
    rows = [
        (f"{place:g}", *(f"{points[place]:.3f}" if place in points else "" for points in known.values()))
        for place in places
    ]
    return ReportTable((axes.get_xlabel(), *known), rows)


def _are_upright(bars: object) -> bool:
    return isinstance(bars, BarContainer) and bars.orientation == "vertical"


def blues(count: int) -> list[str]:
    """That many shades, from light to dark."""
    shades = matplotlib.colormaps["Blues"]
    return [matplotlib.colors.to_hex(shades(0.35 + 0.65 * place / max(1, count - 1))) for place in range(count)]


def new_figure(width: float, height: float, dpi: int) -> Figure:
    """An empty figure of this size in inches, with room made for all labels."""
    drawing = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing


def png_of(drawing: Figure) -> bytes:
    """The figure as PNG: the same drawing gives the same bytes, with no version of matplotlib in them."""
    png = io.BytesIO()
    save(drawing, png, "png", {"Software": "raypoly"})
    return png.getvalue()


def save(drawing: Figure, file: io.BytesIO | Path, kind: str, metadata: Mapping[str, str | None]) -> None:
    """Write the figure as `kind` (png, pdf, svg). Text stands as it is: a `$` in an arm's name starts no formula."""
    text: Any
    for text in drawing.findobj(Text):
        text.set_parse_math(False)
    drawing.savefig(file, format=kind, metadata=metadata)


def clean_axes(panels: Iterable[Axes], grid: bool = False) -> None:
    """Remove the frame's top and right; with `grid`, draw a faint grid."""
    for axes in panels:
        if grid:
            axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)


def steps_axis(axes: Axes) -> None:
    """Let the horizontal axis count steps: ticks are whole numbers."""
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def from_zero(axes: Axes) -> None:
    """Let the vertical axis begin at 0, unless something is below, as a reward of the user's own may be."""
    if axes.dataLim.y0 >= 0:
        axes.set_ylim(bottom=0)


def samples_axis(axes: Axes, ks: Sequence[str], title: str) -> None:
    """Let the axes show pass@k over k; `ks` are the ticks, empty where nothing is drawn."""
    if ks:
        axes.set_xscale("log", base=2)
        axes.set_xticks([int(k) for k in ks], ks)
    axes.set(title=title, xlabel="k samples a problem", ylabel="pass@k", ylim=(0, 1.02))


def legend_below(axes: Axes, columns: int = 3, below: float = 0.13) -> None:
    """Put the legend under the panel, `below` in panel heights; a panel without data says "not measured"."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -below))
    else:
        say_not_measured(axes)


def say_not_measured(axes: Axes) -> None:
    """Write "not measured" into an empty panel."""
    axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes, color=GREY)


def running_mean(values: Sequence[float]) -> list[float]:
    """The mean of each value and of up to `SMOOTHING` - 1 values before it."""
    windows = (values[max(0, end - SMOOTHING) : end] for end in range(1, len(values) + 1))
    return [math.fsum(window) / len(window) for window in windows]
