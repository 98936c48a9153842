"""Panels: their colours, axes and legends; how they become pictures of a page, and files for a paper.

png, numbers = drawn(Panel("reward over the steps", draw))          # one panel alone, and its numbers
write_figures(Path("figures"), {"coverage": panel}, {"results": table})

A paper's files are one column wide, with text of 7 pt or more: do not scale them down. The same drawing gives the same
bytes.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
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
# Letters of a legend's longest label, for which a paper's width has room: with two columns, and with one.
_BESIDE, _ALONE = 22, 50


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
    return png_of(drawing), _numbers(axes)


def _numbers(axes: Axes) -> ReportTable:
    # A column for each line and kind of bar of the figure, by its gid or label; a row for each horizontal place.
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
    # matplotlib names what has no label `_child0`
    known = {name: points for name, points in series.items() if points and not name.startswith("_")}
    places = sorted({place for points in known.values() for place in points})
    rows = [
        (f"{place:g}", *(f"{points[place]:.3f}" if place in points else "" for points in known.values()))
        for place in places
    ]
    return ReportTable((axes.get_xlabel(), *known), rows)


def _are_upright(bars: object) -> bool:
    return isinstance(bars, BarContainer) and bars.orientation == "vertical"


def write_figures(folder: Path, panels: Mapping[str, Panel], tables: Mapping[str, ReportTable]) -> list[Path]:
    """Write NAME.pdf, .svg and .png of each panel, NAME.csv and .tex of each table; returns the files.

    Raises `UsageError` where the folder can't be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, panel in panels.items():
            written += _write_panel(folder / _file_name(name), panel)
        for name, table in tables.items():
            for suffix, text in ((".csv", table.csv()), (".tex", table.latex())):
                path = folder / f"{_file_name(name)}{suffix}"
                path.write_text(text)
                written.append(path)
    except OSError as error:
        raise UsageError(f"--figures {folder} can't be written: {error}.") from error
    return written


def named_panels(panels: Sequence[Panel]) -> dict[str, Panel]:
    """By what they show, as names of files."""
    return {re.sub(r"[^a-z0-9]+", "_", panel.shows.lower()).strip("_"): panel for panel in panels}


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+=-]+", "_", name)


def _write_panel(path: Path, panel: Panel) -> list[Path]:
    with matplotlib.rc_context(_PAPER):
        drawing = new_figure(WIDTH, HEIGHT, dpi=300)
        axes = drawing.subplots()
        panel.draw(axes)
        clean_axes([axes], grid=True)
        if (own := axes.get_legend()) is not None:
            own.remove()
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            columns = 2 if max(map(len, labels)) <= _BESIDE else 1
            wrapped = [textwrap.fill(label, _ALONE) for label in labels]
            lines = sum(label.count("\n") + 1 for label in wrapped)
            # the legend's room is added: it takes none of the panel's
            drawing.set_size_inches(WIDTH, HEIGHT + 0.14 * -(-lines // columns))
            drawing.legend(handles, wrapped, loc="outside lower center", ncols=columns, frameon=False)
        files = [path.with_name(f"{path.name}.{kind}") for kind in _FORMATS]
        for file, kind in zip(files, _FORMATS, strict=True):
            save(drawing, file, kind)
    return files


def new_figure(width: float, height: float, dpi: int) -> Figure:
    """An empty figure of this size in inches, with room made for all labels."""
    drawing = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing


def png_of(drawing: Figure) -> bytes:
    png = io.BytesIO()
    save(drawing, png, "png")
    return png.getvalue()


def save(drawing: Figure, file: io.BytesIO | Path, kind: str) -> None:
    """Write the figure as `kind` (png, pdf, svg). Text stands as it is: a `$` in an arm's name starts no formula."""
    text: Any
    for text in drawing.findobj(Text):
        text.set_parse_math(False)
    drawing.savefig(file, format=kind, metadata=_FORMATS[kind])


def blues(count: int) -> list[str]:
    """That many shades, from light to dark."""
    shades = matplotlib.colormaps["Blues"]
    return [matplotlib.colors.to_hex(shades(0.35 + 0.65 * place / max(1, count - 1))) for place in range(count)]


def clean_axes(panels: Iterable[Axes], grid: bool = False) -> None:
    """Remove the frame's top and right; with `grid`, draw a faint grid."""
    for axes in panels:
        if grid:
            axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)


def steps_axis(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def from_zero(axes: Axes) -> None:
    """Begin the vertical axis at 0, unless something is below, as a reward of the user's own may be."""
    if axes.dataLim.y0 >= 0:
        axes.set_ylim(bottom=0)


def samples_axis(axes: Axes, ks: Sequence[str], title: str) -> None:
    """Label the axes of pass@k over k; `ks` are the ticks, empty where nothing is drawn."""
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
    axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes, color=GREY)


def running_mean(values: Sequence[float]) -> list[float]:
    """The mean of each value and of up to `SMOOTHING` - 1 values before it."""
    windows = (values[max(0, end - SMOOTHING) : end] for end in range(1, len(values) + 1))
    return [math.fsum(window) / len(window) for window in windows]
