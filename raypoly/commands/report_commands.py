"""`raypoly report` and `raypoly doctor`: look at runs and machines, and change nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from raypoly.analysis.run import Run
from raypoly.commands.command_options import ConfigPath, Figures, Overrides
from raypoly.core import settings
from raypoly.core.errors import UsageError
from raypoly.run.crash import Crash

EXAMPLES = """Examples:

raypoly report RUN

raypoly report RUN --out mine.html

raypoly report GRPO-S0 GRPO-S1 POLY-S0 POLY-S1 --out ours.html"""


def report(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN", show_default=False)] = None,
    run: Annotated[list[str] | None, typer.Option("--run", help="A run folder, as RUN; for scripts.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The page. Default: report.html in the run's folder; of several runs comparison.html."
        ),
    ] = None,
    figures: Figures = None,
) -> None:
    """Write a page on one run, or compare several. With a browser of their rollouts."""
    opened = [Run(place) for place in [*(runs or []), *(run or [])]]
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


def doctor(
    overrides: Overrides = None,
    config: ConfigPath = None,
    run: Annotated[str | None, typer.Option("--run", help="A run folder, to examine it and not the machine.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say whether this machine, and each node of its cluster, is ready for a config. With --run, check every file of a
    run and say where it would go on. Change nothing. Exit code 1 if something is not ok or a file is damaged."""
    if run is None:
        from workflows.doctor.machine import examine_machine, print_findings

        sound = print_findings(examine_machine(settings.load(config, overrides or [])), json)
    elif config is not None or overrides:
        raise UsageError("--run examines a run, whose config is its own: leave out --config and section.key=value.")
    else:
        from workflows.doctor.run_check import print_report

        sound = print_report(run, json)
    if not sound:
        raise typer.Exit(1)
