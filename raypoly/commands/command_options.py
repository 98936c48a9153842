"""What several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigPath = Annotated[
    str | None, typer.Option("--config", help="A YAML file. Default: the embedded configs/tiny.yaml.")
]
Figures = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Also write each panel as PDF, SVG, PNG, each table as CSV and LaTeX."),
]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="section.key=value", show_default=False)]
