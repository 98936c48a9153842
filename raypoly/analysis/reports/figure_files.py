"""Panels and tables as files for a paper: PDF, SVG and PNG of one column's width; CSV and LaTeX.

    write_figures(Path("figures"), {"coverage": panel}, {"results": table})

Text is 7 pt or more at the width that is written, so do not scale the files down.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

from raypoly.analysis.reports import figures
from raypoly.core.errors import UsageError
from raypoly.core.tables import ReportTable

WIDTH, HEIGHT = 3.3, 2.6
"""Inches of a file."""
SMALLEST = 7
"""Points of the smallest text."""
_STYLE = {
    **{"font.size": SMALLEST, "axes.titlesize": 8, "axes.labelsize": SMALLEST, "legend.fontsize": SMALLEST},
    **{"axes.linewidth": 0.6, "lines.markersize": 3, "pdf.fonttype": 42, "svg.hashsalt": "raypoly"},
}
_FORMATS: Mapping[str, Mapping[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "raypoly", "Producer": None},
    "svg": {"Date": None, "Creator": "raypoly"},
    "png": {"Software": "raypoly"},
}
"""File formats, and what they say of their making: nothing that changes from one day or version to the next."""
_BESIDE, _ALONE = 22, 50
"""Letters of a legend's longest label, for which the width has room: with two columns, and with one."""


def write_figures(folder: Path, panels: Mapping[str, figures.Panel], tables: Mapping[str, ReportTable]) -> list[Path]:
    """Write NAME.pdf, .svg and .png of each panel, NAME.csv and .tex of each table; returns the files. What can't stand
    in a file's name, as of an arm that is called by its folder, is an underscore there.

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


def named_panels(panels: Sequence[figures.Panel]) -> dict[str, figures.Panel]:
    """By what they show, as names of files."""
    return {re.sub(r"[^a-z0-9]+", "_", panel.shows.lower()).strip("_"): panel for panel in panels}


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+=-]+", "_", name)


def _write_panel(path: Path, panel: figures.Panel) -> list[Path]:
    with matplotlib.rc_context(_STYLE):
        drawing = figures.new_figure(WIDTH, HEIGHT, dpi=300)
        axes = drawing.subplots()
        panel.draw(axes)
        figures.clean_axes([axes], grid=True)
        if (own := axes.get_legend()) is not None:
            own.remove()
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            columns = 2 if max(map(len, labels)) <= _BESIDE else 1
            wrapped = [textwrap.fill(label, _ALONE) for label in labels]
            lines = sum(label.count("\n") + 1 for label in wrapped)
            drawing.set_size_inches(WIDTH, HEIGHT + 0.14 * -(-lines // columns))
            drawing.legend(handles, wrapped, loc="outside lower center", ncols=columns, frameon=False)
        files = [path.with_name(f"{path.name}.{kind}") for kind in _FORMATS]
        for file, (kind, metadata) in zip(files, _FORMATS.items(), strict=True):
            figures.save(drawing, file, kind, metadata)
    return files
