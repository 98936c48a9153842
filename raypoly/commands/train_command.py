"""`raypoly train`: train, or go on with a stopped run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from raypoly.commands.command_options import ConfigPath, Overrides
from raypoly.core import settings
from raypoly.core.errors import UsageError
from raypoly.run.crash import Crash

EXAMPLES = """Examples:

raypoly train train.steps=6 evaluate.samples=16

raypoly train --dry-run --verbose --config my.yaml

raypoly train objective.name=my_module:MyObjective train.seed=1

Give the same command again, and a stopped run goes on."""


def train(
    overrides: Overrides = None,
    config: ConfigPath = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print plan, memory, changed keys and a prompt; start nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --dry-run: print every key.")] = False,
    gpu: Annotated[
        str | None, typer.Option(help="With --dry-run: plan for this GPU (h200, a100 ...). Default: this machine's.")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Try every part in one step aside, forecast the run, exit.")
    ] = False,
) -> None:
    """Train, or go on with a stopped run. Print the results of a finished one."""
    if ((gpu is not None or verbose) and not dry_run) or (dry_run and rehearse):
        raise UsageError(
            "--gpu and --verbose need --dry-run, and --rehearse excludes it: a rehearsal runs on this machine."
        )
    dropped: list[str] = []  # told when the config is known to be sound
    chosen = settings.load(config, overrides or [], dropped.append)
    from raypoly.planning import preflight
    from raypoly.planning.devices import ELSEWHERE
    from raypoly.run.run_identity import resolve_run, storage_options

    directory = resolve_run(chosen)
    fixed = directory.config
    if dry_run:
        from raypoly.planning.devices import gpu_to_plan

        gpu = gpu_to_plan(gpu, [fixed], lambda note: typer.echo(note, err=True))
    here = None if gpu is None else ELSEWHERE
    remarks = preflight.check_config(fixed, directory.path, here, remote=directory.location.folder is None)
    for remark in [*dropped, *remarks]:
        typer.echo(f"Note: {remark}", err=True)
    if dry_run:
        from raypoly.planning.dry_run import show_dry_run

        show_dry_run(fixed, directory, gpu, verbose)
        return
    if rehearse:
        from workflows.startup.rehearsal import rehearse as run_rehearsal

        run_rehearsal(fixed, directory)
        return
    Crash.run_dir = directory.location.folder
    from rich.console import Console

    from raypoly.algorithms import objectives
    from raypoly.analysis.reports.run_page import show_results
    from raypoly.analysis.run import Run
    from workflows.train import run

    run(chosen)
    show_results(Run(directory.location, storage_options(chosen)), Console())
    if objectives.of_run(chosen).reads_rewards:
        typer.echo(_to_compare(chosen.objective.name, config, overrides or []))


def _to_compare(objective: str, config: str | None, overrides: Sequence[str]) -> str:
    """The command of the other arm, or why it can't be the same with another objective."""
    from raypoly.analysis.reports.run_page import other_arm_overrides
    from raypoly.planning import preflight
    from raypoly.planning.devices import ELSEWHERE
    from raypoly.run.run_identity import resolve_run
    from workflows.liveness.shutdown import shell_command

    others = other_arm_overrides(objective, overrides)
    try:
        directory = resolve_run(settings.load(config, others, lambda text: None))
        preflight.check_config(directory.config, directory.path, ELSEWHERE)
    except UsageError as error:
        return f"to compare: {others[-1]} needs other keys than this run: {error}"
    given = ["--config", config] if config is not None else []
    return f"to compare: {shell_command(['-m', 'raypoly.train', *given, *others])}"
