"""`raypoly experiment`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raypoly.commands.command_options import Figures, Overrides
from raypoly.core.errors import UsageError


def experiment(
    config: Annotated[
        str, typer.Option("--config", help="A YAML file, such as configs/experiments/tiny.yaml: docs/experiments.md.")
    ],
    overrides: Overrides = None,
    out: Annotated[
        str | None, typer.Option(help="The folder of the runs. Default: experiment-NAME under $RAYPOLY_RUNS.")
    ] = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Runs at the same time.")] = 1,
    into: Annotated[
        str | None, typer.Option(metavar="PAGE", help="Also write table and figure into this Markdown page.")
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A results.json of other folders, whose finished runs are used."),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Write table and figure of the runs so far; start nothing.")
    ] = False,
    power: Annotated[
        bool, typer.Option("--power", help="Say how small a difference the experiment can show; start nothing.")
    ] = False,
    pilot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="For --power and --dry-run: a results.json that says how differences spread."
        ),
    ] = None,
    figures: Figures = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the experiment will cost and can show; start nothing.")
    ] = False,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="For --dry-run: plan for this GPU, such as h200.")
    ] = None,
) -> None:
    """Train several arms over several seeds and compare them. The same command goes on."""
    from raypoly.analysis.experiments.experiment_config import load_experiment

    planned = load_experiment(config)  # raises here, before statistics and figures, which take seconds to import
    if gpu is not None and not dry_run:
        raise UsageError("--gpu is for --dry-run, which says what an experiment will cost.")
    if pilot is not None and not (power or dry_run):
        raise UsageError("--pilot is for --power and --dry-run, which say how small a difference is found.")
    if dry_run or power:
        from raypoly.analysis.experiments.experiment_forecast import forecast_lines, power_lines
        from raypoly.analysis.experiments.planned_runs import plan_runs
        from raypoly.analysis.experiments.run_queue import folder_of

        runs = plan_runs(planned, folder_of(out, planned.name), overrides or [])
        for line in forecast_lines(runs, gpu, pilot) if dry_run else power_lines(runs, pilot):
            print(line, flush=True)
        return
    from raypoly.analysis.experiments.experiment_command import run_experiment

    page = None if into is None else Path(into)
    run_experiment(config, overrides or [], out, at_once, page, report, also or [], figures=figures)
