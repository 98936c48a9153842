"""An experiment's report: results.json, table.md and figure.png, and the same within a page of yours.

write_experiment_report(experiment, out, runs, at_once=1)
write_into_page(experiment, Path("docs/results/mine.md"), out)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from raypoly.analysis.experiments.arm_comparison import ArmComparison, compare_arms
from raypoly.analysis.experiments.experiment_config import ExperimentConfig
from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.analysis.experiments.run_queue import most_at_once
from raypoly.analysis.experiments.run_result import RunResult
from raypoly.analysis.reports.charts import draw_experiment, experiment_panels
from raypoly.analysis.reports.comparison_tables import (
    comparison_tables,
    comparison_text,
    found_tables,
)
from raypoly.analysis.reports.figures import Panel, write_figures
from raypoly.analysis.reports.pages import fill_place
from raypoly.core import __version__
from raypoly.core.errors import UsageError
from raypoly.core.tables import ReportTable
from raypoly.core.whole_files import check_output, write_output

RESULTS, TABLE, FIGURE = "results.json", "table.md", "figure.png"
_PLACE = "experiment"  # the kind of place in a page that takes an experiment's tables


def write_experiment_report(
    experiment: ExperimentConfig, out: Path, runs: Sequence[PlannedRun], at_once: int
) -> list[RunResult]:
    """Write the three files anew; returns the runs' results. Raises `StorageError`.

    `at_once`: the most runs side by side, also in other folders whose results are among them.
    """
    found = [run.result for run in runs]
    compared = compare_arms(found, _primary(experiment))
    at_once = max(at_once, most_at_once(out))
    write_output(out / RESULTS, (json.dumps(_values(experiment, runs, found, compared, at_once)) + "\n").encode())
    write_output(out / FIGURE, draw_experiment(experiment.name, compared))
    elsewhere = sum(run.elsewhere is not None for run in runs)
    parts = _page_parts(experiment.name, found, compared, at_once, elsewhere)
    write_output(out / TABLE, ("\n".join(parts) + "\n").encode())
    return found


def page_with_place(experiment: ExperimentConfig, page: Path) -> str:
    """Raises `UsageError` where the page can't be read or written or has no place for the experiment."""
    try:
        text = page.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--into {page} can't be read: {error}.") from error
    check_output(page, "--into")
    fill_place(text, _PLACE, experiment.name, "", str(page))
    return text


def write_into_page(experiment: ExperimentConfig, page: Path, out: Path) -> None:
    """Write the tables into the page, and figure and numbers beside it. Raises `StorageError`."""
    picture = page.with_name(f"{experiment.name}.png")
    table = (out / TABLE).read_text().replace(f"]({FIGURE})", f"]({picture.name})")
    text = fill_place(page_with_place(experiment, page), _PLACE, experiment.name, table, str(page))
    if f"]({picture.name})" in table:
        write_output(picture, (out / FIGURE).read_bytes())
    write_output(page.with_name(f"{experiment.name}.json"), (out / RESULTS).read_bytes())
    write_output(page, text.encode())


def write_experiment_figures(experiment: ExperimentConfig, results: Sequence[RunResult], folder: Path) -> list[Path]:
    """Each panel and table as files for a paper, a set for each number of steps."""
    compared = [each for each in compare_arms(results, _primary(experiment)) if any(arm.runs for arm in each.arms)]
    panels: dict[str, Panel] = {}
    tables: dict[str, ReportTable] = {}
    for each in compared:
        end = f"_{each.steps}_steps" if len(compared) > 1 else ""
        panels |= {name + end: panel for name, panel in experiment_panels(each).items()}
        tables |= {name + end: table for name, table in comparison_tables(each).items()}
    commands = {each.found.title: each.found.command for each in results if each.found is not None}
    tables |= {commands[title]: table for title, table in found_tables(results).items()}
    return write_figures(folder, panels, tables)


def _primary(experiment: ExperimentConfig) -> str | None:
    return None if experiment.primary is None else experiment.primary.key


def _values(
    experiment: ExperimentConfig,
    runs: Sequence[PlannedRun],
    found: Sequence[RunResult],
    compared: Sequence[ArmComparison],
    at_once: int,
) -> dict[str, Any]:
    """JSON values; null where nothing is known."""
    arms = {
        name: {"command": arm.words, "after": list(arm.after), "overrides": list(arm.overrides({}))}
        for name, arm in experiment.arms.items()
    }
    return {
        "name": experiment.name,
        "raypoly": __version__,
        "config": experiment.config,
        "at_once": at_once,
        "arms": arms,
        "runs": [_run_values(run, result) for run, result in zip(runs, found, strict=True)],
        "comparisons": [_comparison(each) for each in compared],
    }


def _run_values(run: PlannedRun, result: RunResult) -> dict[str, Any]:
    values = {key: value for key, value in asdict(result).items() if key != "start"}
    return values | {"overrides": list(run.keys)}


def _comparison(compared: ArmComparison) -> dict[str, Any]:
    def spreads(spread_of: Any) -> dict[str, Any]:
        found = {measure: spread_of(measure) for measure in compared.measures}
        return {measure: None if spread is None else asdict(spread) for measure, spread in found.items()}

    return {
        "steps": compared.steps,
        "before": [{"arms": list(start.arms), **spreads(start.before)} for start in compared.starts],
        "after": {arm.name: spreads(arm.after) for arm in compared.arms},
        "difference": {
            arm.name: spreads(lambda measure, arm=arm: compared.difference(arm, measure)) for arm in compared.arms[1:]
        },
    }


def _page_parts(
    name: str, results: Sequence[RunResult], compared: Sequence[ArmComparison], at_once: int, elsewhere: int
) -> Iterator[str]:
    """Markdown. `elsewhere`: how many runs were trained in other folders."""
    finished = [result for result in results if result.finished]
    if not finished:
        yield "*No run is finished yet.*"
        return
    beside = f" {elsewhere} of them were trained elsewhere, with times of that machine." if elsewhere else ""
    shared = f" Up to {at_once} runs went on at once, so times are those of a shared machine." if at_once > 1 else ""
    yield f"*Written by `raypoly experiment` ({__version__}): {_count_finished(results)}.{beside}{shared}*\n"
    for comparison in compared:
        if any(arm.runs for arm in comparison.arms):
            yield comparison_text(comparison)
    for title, table in found_tables(results).items():
        yield f"**{title}.**\n\n{table.markdown()}"
    yield f"![{name}: pass@k, strategies and reward by arm]({FIGURE})"


def _count_finished(results: Sequence[RunResult]) -> str:
    finished = sum(result.finished for result in results)
    missing = Counter(result.arm for result in results if not result.finished)
    lacking = "".join(f"{', ' if i else '; '}{arm} lacks {count}" for i, (arm, count) in enumerate(missing.items()))
    return f"{finished} of {len(results)} runs are finished{lacking}"
