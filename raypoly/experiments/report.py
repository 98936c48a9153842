"""What an experiment leaves to be read: results.json, table.md and figure.png, and the same within a page of yours.

report(experiment, out, runs)
into(experiment, Path("docs/results.md"), out)
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from raypoly import __version__
from raypoly.errors import UsageError
from raypoly.experiments.comparing import Comparison, comparisons
from raypoly.experiments.config import ExperimentConfig
from raypoly.experiments.figure import figure
from raypoly.experiments.page import fragment, written
from raypoly.experiments.plan import PlannedRun
from raypoly.experiments.results import MEASURES, RunResult, results
from raypoly.experiments.starts import most_at_once

RESULTS, TABLE, FIGURE = "results.json", "table.md", "figure.png"


def report(experiment: ExperimentConfig, out: Path, runs: Sequence[PlannedRun]) -> list[RunResult]:
    """Write the three files anew from the runs' own; what the runs came to."""
    found = results(runs)
    compared = comparisons(found)
    at_once = most_at_once(out)
    _put(out / RESULTS, (json.dumps(_values(experiment, found, compared, at_once), indent=2) + "\n").encode())
    _put(out / FIGURE, figure(experiment.name, compared))
    _put(out / TABLE, fragment(experiment, found, at_once, FIGURE).encode())
    return found


def page_with_place(experiment: ExperimentConfig, page: Path) -> str:
    """The page's text. Raises `UsageError` where it can't be read or has no place for the experiment."""
    try:
        text = page.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--into {page} can't be read: {error}.") from error
    written(text, experiment.name, "", str(page))
    return text


def into(experiment: ExperimentConfig, page: Path, out: Path) -> None:
    """Put table and figure where the page has a place for them; the figure beside it, named after both."""
    picture = page.with_name(f"{page.stem}-{experiment.name}.png")
    table = (out / TABLE).read_text().replace(f"]({FIGURE})", f"]({picture.name})")
    text = written(page_with_place(experiment, page), experiment.name, table, str(page))
    if f"]({picture.name})" in table:
        shutil.copyfile(out / FIGURE, picture)
    _put(page, text.encode())


def _values(
    experiment: ExperimentConfig, found: Sequence[RunResult], compared: Sequence[Comparison], at_once: int
) -> dict[str, Any]:
    """JSON values; null where nothing is known."""
    arms = {name: {"overrides": list(arm.overrides)} for name, arm in experiment.arms.items()}
    return {
        "name": experiment.name,
        "raypoly": __version__,
        "config": experiment.config,
        "at_once": at_once,
        "arms": arms,
        "runs": [{key: value for key, value in asdict(run).items() if key != "start"} for run in found],
        "comparisons": [_comparison(each) for each in compared],
    }


def _comparison(compared: Comparison) -> dict[str, Any]:
    def spreads(value: Any) -> dict[str, Any]:
        found = {measure: value(measure) for measure in MEASURES}
        return {measure: None if spread is None else asdict(spread) for measure, spread in found.items()}

    return {
        "steps": compared.steps,
        "before": [{"arms": list(start.arms), **spreads(start.before)} for start in compared.starts],
        "after": {arm.name: spreads(arm.after) for arm in compared.arms},
        "difference": {
            arm.name: spreads(lambda measure, arm=arm: compared.difference(arm, measure)) for arm in compared.arms[1:]
        },
    }


def _put(path: Path, data: bytes) -> None:
    """Whole or not at all: a reader may look at any time."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    aside.replace(path)
