"""What an experiment leaves to be read: results.json, table.md and figure.png, and the same within a page of yours.

report(experiment, out, runs, at_once=1)
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
from raypoly.experiments.arm_comparison import ArmComparison, comparisons
from raypoly.experiments.experiment_config import ExperimentConfig
from raypoly.experiments.experiment_folder import most_at_once
from raypoly.experiments.planned_runs import PlannedRun
from raypoly.experiments.run_result import MEASURES, RunResult, results
from raypoly.reports.experiment_figure import figure
from raypoly.reports.experiment_page import fragment, written

RESULTS, TABLE, FIGURE = "results.json", "table.md", "figure.png"


def report(experiment: ExperimentConfig, out: Path, runs: Sequence[PlannedRun], at_once: int) -> list[RunResult]:
    """Write the three files anew from the runs' own; what the runs came to. `at_once`: the most runs that went on side
    by side in other folders, whose results are among them."""
    found = results(runs)
    compared = comparisons(found)
    at_once = max(at_once, most_at_once(out))
    _put(out / RESULTS, (json.dumps(_values(experiment, runs, found, compared, at_once)) + "\n").encode())
    _put(out / FIGURE, figure(experiment.name, compared))
    elsewhere = sum(run.elsewhere is not None for run in runs)
    _put(out / TABLE, fragment(experiment.name, found, at_once, FIGURE, elsewhere).encode())
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
    """Put the table where the page has a place for it; figure and numbers beside the page, named after both."""
    picture = page.with_name(f"{page.stem}-{experiment.name}.png")
    table = (out / TABLE).read_text().replace(f"]({FIGURE})", f"]({picture.name})")
    text = written(page_with_place(experiment, page), experiment.name, table, str(page))
    if f"]({picture.name})" in table:
        shutil.copyfile(out / FIGURE, picture)
    shutil.copyfile(out / RESULTS, page.with_name(f"{page.stem}-{experiment.name}.json"))
    _put(page, text.encode())


def _values(
    experiment: ExperimentConfig,
    runs: Sequence[PlannedRun],
    found: Sequence[RunResult],
    compared: Sequence[ArmComparison],
    at_once: int,
) -> dict[str, Any]:
    """JSON values; null where nothing is known."""
    arms = {name: {"overrides": list(arm.overrides)} for name, arm in experiment.arms.items()}
    return {
        "name": experiment.name,
        "raypoly": __version__,
        "config": experiment.config,
        "at_once": at_once,
        "arms": arms,
        "runs": [_run(run, result) for run, result in zip(runs, found, strict=True)],
        "comparisons": [_comparison(each) for each in compared],
    }


def _run(run: PlannedRun, result: RunResult) -> dict[str, Any]:
    values = {key: value for key, value in asdict(result).items() if key != "start"}
    return {**values, "overrides": list(run.keys)}


def _comparison(compared: ArmComparison) -> dict[str, Any]:
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
