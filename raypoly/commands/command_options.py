"""What several commands take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from raypoly.core.errors import UsageError


def _can_be_written(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    from raypoly.planning.devices import existing_parent

    above = existing_parent(folder.expanduser())
    if not above.is_dir():
        raise UsageError(f"--figures {folder} can't be written: {above} is a file; name a folder.")
    if not os.access(above, os.W_OK):
        raise UsageError(f"--figures {folder} can't be written: {above} is not yours to write; name another folder.")
    return folder.expanduser()


ConfigPath = Annotated[
    str | None,
    typer.Option("--config", help="A YAML file, or one of raypoly's own by name: smollm2 ... Default: tiny."),
]
Figures = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        callback=_can_be_written,
        help="Also write each panel as PDF, SVG, PNG, each table of measures as CSV and LaTeX.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what is wrong with config and options; start nothing.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="section.key=value", show_default=False)]
