"""`raypoly report`: a page on one run, or on several compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from raypoly.commands.command_options import Figures
from raypoly.core.errors import UsageError
from raypoly.run.crash import Crash

EXAMPLES = """Examples:

raypoly report RUN

raypoly report RUN --out mine.html

raypoly report GRPO-S0 GRPO-S1 POLY-S0 POLY-S1 --out ours.html"""


def report(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The page. Default: report.html in the run's folder; of several runs comparison.html."
        ),
    ] = None,
    figures: Figures = None,
) -> None:
    """Write a page on one run, or compare several. With a browser of their rollouts."""
    from rich.console import Console

    from raypoly.analysis.run import Run

    opened = [Run(place) for place in runs or []]
    if not opened:
        raise UsageError("Name a run, or several to compare: raypoly report RUN [RUN ...].")
    if len(opened) > 1:
        from raypoly.analysis.reports.comparison_page import show_comparison

        show_comparison(opened, (out or Path("comparison.html")).expanduser(), Console(), figures)
        return
    Crash.run_dir = folder = opened[0].store.location.folder
    if out is None and folder is not None and not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} is not yours to write: name a place for the page with --out FILE.")
    from raypoly.analysis.reports.run_page import show_results

    show_results(opened[0], Console(), figures, None if out is None else out.expanduser())
