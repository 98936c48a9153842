"""The last words of a run: the table, the files, and the command of the arm to compare with."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from raypoly.reports.run_page import write_report
from raypoly.reports.run_table import end_table

if TYPE_CHECKING:
    from raypoly.run import Run


def show_results(run: Run, console: Console) -> None:
    """Write figure and report, and print the table and where they are."""
    from raypoly.run import FIGURE

    page = write_report(run)
    if run.evaluations:
        console.print()
        console.print(end_table(run.summary))
    for name, path in (("figure", run.store.place(FIGURE)), ("report", page)):
        console.print(f"{name}: {path}", highlight=False, markup=False, soft_wrap=True)


def other_arm(objective: str, config_path: str | None, overrides: Sequence[str]) -> str:
    """The shell command that runs the same with GRPO (Poly-EPO where this was GRPO) in a folder of its own."""
    other = "poly_epo" if objective == "grpo" else "grpo"
    kept = [text for text in overrides if not text.strip().startswith(("objective.", "run.dir=", "run.fresh="))]
    config = ["--config", config_path] if config_path is not None else []
    return shlex.join([_python(), "-m", "raypoly.train", *config, *kept, f"objective.name={other}"])


def _python() -> str:
    """This interpreter, relative where it lies below the working directory (`.venv/bin/python`)."""
    inside = os.path.relpath(sys.executable)
    return sys.executable if inside.startswith("..") else inside
