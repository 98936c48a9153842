"""`raypoly doctor`: look at a machine or a run, and change nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from raypoly.commands.command_options import ConfigPath, Overrides
from raypoly.core.errors import UsageError


def doctor(
    overrides: Overrides = None,
    config: ConfigPath = None,
    run: Annotated[str | None, typer.Option("--run", help="A run folder, to examine it and not the machine.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say whether this machine, and each node of its cluster, is ready for a config. With --run, check every file of a
    run and say where it would go on. Change nothing. Exit code 1 if something is not ok or a file is damaged."""
    if run is None:
        from raypoly.planning.run_config import load_run_config
        from workflows.doctor.machine import examine_machine, print_findings

        sound = print_findings(examine_machine(load_run_config(config, overrides or [])), json)
    elif config is not None or overrides:
        raise UsageError("--run examines a run, whose config is its own: leave out --config and section.key=value.")
    else:
        from workflows.doctor.run_check import print_report

        sound = print_report(run, json)
    if not sound:
        raise typer.Exit(1)
