"""`raypoly prepare`: make a data set."""

from __future__ import annotations

from typing import Annotated

import typer

from raypoly.commands.command_options import Overrides


def prepare(
    config: Annotated[
        str, typer.Option("--config", help="A YAML file, such as configs/prepare/tiny.yaml: docs/data.md.")
    ],
    overrides: Overrides = None,
    explain: Annotated[
        str | None, typer.Option(metavar="ID", help="Say why this problem was kept or left out; start nothing.")
    ] = None,
) -> None:
    """Make a data set from files of problems: check, compare, sample, split, write. Or go on with one."""
    from raypoly.core.settings import load_of
    from raypoly.data.preparing.prepare_config import PrepareConfig

    chosen = load_of(PrepareConfig, config, overrides or [])
    if explain is not None:
        from raypoly.data.preparing.decision_log import explain_problem
        from raypoly.data.preparing.preparation_folder import PreparationFolder

        typer.echo(explain_problem(PreparationFolder.of(chosen).look(), explain))
        return
    from workflows.prepare import prepare as run_preparation

    run_preparation(chosen)
