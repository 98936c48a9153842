"""Panels: their colours, axes and legends; how they become a picture, and files for a paper.

png = draw_grid("mine", {"": [Panel("reward over the steps", draw)]}, columns=1)
write_figures(Path("figures"), {"coverage": panel}, {"results": table})

A paper's files are one column wide, with text of 7 pt or more: do not scale them down. The same drawing gives the same
bytes.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from raypoly.core.errors import UsageError
from raypoly.core.tables import ReportTable

MIDDLE_BLUE, BLUE, DARK_BLUE = "#4292c6", "#2171b5", "#08306b"
ORANGE, GREEN, PURPLE, PINK = "#d95f02", "#1b9e77", "#7570b3", "#e7298a"
GREY, LIGHT_GREY = "#999999", "#bdbdbd"
SMOOTHING = 5
"""Steps in a running mean."""
WIDTH, HEIGHT = 3.3, 2.6
"""Inches of a paper's file."""
SMALLEST = 7
"""Points of a paper's smallest text."""
_PAGE = {"legend.fontsize": 8}
_PAPER = {
    **{"font.size": SMALLEST, "axes.titlesize": 8, "axes.labelsize": SMALLEST, "legend.fontsize": SMALLEST},
    **{"axes.linewidth": 0.6, "lines.markersize": 3, "pdf.fonttype": 42, "svg.hashsalt": "raypoly"},
}
# no date and no version of matplotlib: they would change bytes from one day or machine to the next
_FORMATS: Mapping[str, Mapping[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "raypoly", "Producer": None},
    "svg": {"Date": None, "Creator": "raypoly"},
    "png": {"Software": "raypoly"},
}
_HANDLE = 5  # letters of a legend's label that its line takes


@dataclass(frozen=True)
class Panel:
    """One chart, which any axes can take. Its legend is made of the labels of what was drawn."""

    shows: str
    """Said to who can't see it."""
    draw: Callable[[Axes], None]


def draw_grid(title: str, parts: Mapping[str, Sequence[Panel]], columns: int) -> bytes:
    """PNG of parts below each other, each a name and its panels in so many columns."""
    heights = [-(-len(panels) // columns) for panels in parts.values()] or [1]
    with matplotlib.rc_context(_PAGE):
        drawing = _new_figure(5.5 * columns, 4.8 * sum(heights), dpi=100)
        drawing.suptitle(title, fontsize=12)
        rows = drawing.subfigures(len(heights), 1, squeeze=False, height_ratios=heights).flat
        for row, height, (name, panels) in zip(rows, heights, parts.items(), strict=False):
            row.suptitle(name, fontsize=11)
            for panel, part in zip(panels, row.subfigures(height, columns, squeeze=False).flat, strict=False):
                _draw(panel, part)
        return _saved(drawing, "png")


def _draw(panel: Panel, part: FigureBase, room: int = 72) -> tuple[Axes, int]:
    """Draw it above its legend, in lines of about `room` letters; returns the axes and the legend's lines."""
    axes = part.subplots()
    panel.draw(axes)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        if not axes.patches:
            axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes, color=GREY)
        return axes, 0
    wrapped = [textwrap.fill(label, room - _HANDLE) for label in labels]
    columns = max(1, min(4, room // (max(map(len, labels)) + _HANDLE)))
    part.legend(handles, wrapped, loc="outside lower center", ncols=columns, frameon=False)
    return axes, -(-sum(label.count("\n") + 1 for label in wrapped) // columns)


def write_figures(folder: Path, panels: Mapping[str, Panel], tables: Mapping[str, ReportTable]) -> list[Path]:
    """Write NAME.pdf, .svg and .png of each panel, NAME.csv and .tex of each table; returns the files.

    Raises `UsageError` where the folder can't be written.
    """
    files: dict[str, bytes] = {}
    for name, panel in panels.items():
        files |= {f"{name}.{kind}": data for kind, data in _paper_files(panel).items()}
    for name, table in tables.items():
        files |= {f"{name}.csv": table.csv().encode(), f"{name}.tex": table.latex().encode()}
    written = {folder / re.sub(r"[^\w.+=-]+", "_", name): data for name, data in files.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in written.items():
            path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"--figures {folder} can't be written: {error}.") from error
    return list(written)


def named_panels(panels: Sequence[Panel]) -> dict[str, Panel]:
    """By what they show, as names of files."""
    return {re.sub(r"[^a-z0-9]+", "_", panel.shows.lower()).strip("_"): panel for panel in panels}


def _paper_files(panel: Panel) -> dict[str, bytes]:
    with matplotlib.rc_context(_PAPER):
        drawing = _new_figure(WIDTH, HEIGHT, dpi=300)
        _, lines = _draw(panel, drawing, room=54)
        drawing.set_size_inches(
            WIDTH, HEIGHT + 0.14 * lines
        )  # the legend's room is added: it takes none of the panel's
        return {kind: _saved(drawing, kind) for kind in _FORMATS}


def _new_figure(width: float, height: float, dpi: int) -> Figure:
    drawing = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing


def _saved(drawing: Figure, kind: str) -> bytes:
    """The figure as png, pdf or svg. Text stands as it is: a `$` in an arm's name starts no formula."""
    text: Any
    for text in drawing.findobj(Text):
        text.set_parse_math(False)
    file = io.BytesIO()
    drawing.savefig(file, format=kind, metadata=_FORMATS[kind])
    return file.getvalue()


def steps_axis(axes: Axes, title: str, **more: Any) -> None:
    """`more`: as `Axes.set`."""
    axes.set(title=title, xlabel="step", **more)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def samples_axis(axes: Axes, ks: Sequence[str], title: str) -> None:
    """Label the axes of pass@k over k; `ks` are the ticks, empty where nothing is drawn."""
    if ks:
        axes.set_xscale("log", base=2)
        axes.set_xticks([int(k) for k in ks], ks)
    axes.set(title=title, xlabel="k samples a problem", ylabel="pass@k", ylim=(0, 1.02))


def running_mean(values: Sequence[float]) -> list[float]:
    """The mean of each value and of up to `SMOOTHING` - 1 values before it."""
    windows = (values[max(0, end - SMOOTHING) : end] for end in range(1, len(values) + 1))
    return [math.fsum(window) / len(window) for window in windows]
