"""An experiment's report: results.json, table.md and figure.png, and the same within a page of yours.

write_experiment_report(experiment, out, runs, at_once=1)
write_into_page(experiment, Path("docs/results.md"), out)
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from raypoly.errors import UsageError
from raypoly.experiments.arm_comparison import Arm, ArmComparison, SeedSpread, Start, compare_arms
from raypoly.experiments.experiment_config import ExperimentConfig
from raypoly.experiments.experiment_folder import most_at_once
from raypoly.experiments.experiment_power import power_sentence
from raypoly.experiments.measured_differences import BEFORE, MeasuredDifference, measure_differences
from raypoly.experiments.planned_runs import PlannedRun
from raypoly.experiments.problem_values import interval_after, interval_before
from raypoly.experiments.run_result import MEASURES, STRATEGIES, RunResult
from raypoly.reports.experiment_figure import draw_experiment
from raypoly.reports.pages import fill_place
from raypoly.reports.tables import DASH, ReportTable
from raypoly.statistics.intervals import ConfidenceInterval
from raypoly.version import __version__

RESULTS, TABLE, FIGURE = "results.json", "table.md", "figure.png"
_PLACE = "experiment"
"""The kind of place in a page that takes an experiment's tables."""


def measure_name(measure: str) -> str:
    """How a table calls one of `MEASURES`."""
    return "distinct correct strategies in 8" if measure == STRATEGIES else f"pass@{measure}"


_HEADS = tuple(map(measure_name, MEASURES))


def write_experiment_report(
    experiment: ExperimentConfig, out: Path, runs: Sequence[PlannedRun], at_once: int
) -> list[RunResult]:
    """Write the three files anew from the runs' own; returns the runs' results.

    `at_once` is the most runs that went on side by side in other folders, whose results are among them.
    """
    found = [run.result for run in runs]
    compared = compare_arms(found)
    at_once = max(at_once, most_at_once(out))
    _replace_file(out / RESULTS, (json.dumps(_values(experiment, runs, found, compared, at_once)) + "\n").encode())
    _replace_file(out / FIGURE, draw_experiment(experiment.name, compared))
    elsewhere = sum(run.elsewhere is not None for run in runs)
    parts = _page_parts(experiment.name, found, at_once, elsewhere)
    _replace_file(out / TABLE, ("\n".join(parts) + "\n").encode())
    return found


def page_with_place(experiment: ExperimentConfig, page: Path) -> str:
    """The page's text. Raises `UsageError` where it can't be read or has no place for the experiment."""
    try:
        text = page.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--into {page} can't be read: {error}.") from error
    fill_place(text, _PLACE, experiment.name, "", str(page))
    return text


def write_into_page(experiment: ExperimentConfig, page: Path, out: Path) -> None:
    """Write the tables into the page's place for them, and figure and numbers beside the page, named after both."""
    picture = page.with_name(f"{page.stem}-{experiment.name}.png")
    table = (out / TABLE).read_text().replace(f"]({FIGURE})", f"]({picture.name})")
    text = fill_place(page_with_place(experiment, page), _PLACE, experiment.name, table, str(page))
    if f"]({picture.name})" in table:
        shutil.copyfile(out / FIGURE, picture)
    shutil.copyfile(out / RESULTS, page.with_name(f"{page.stem}-{experiment.name}.json"))
    _replace_file(page, text.encode())


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
        "runs": [
            {key: value for key, value in asdict(result).items() if key != "start"} | {"overrides": list(run.keys)}
            for run, result in zip(runs, found, strict=True)
        ],
        "comparisons": [_comparison(each) for each in compared],
    }


def _comparison(compared: ArmComparison) -> dict[str, Any]:
    def spreads(spread_of: Any) -> dict[str, Any]:
        found = {measure: spread_of(measure) for measure in MEASURES}
        return {measure: None if spread is None else asdict(spread) for measure, spread in found.items()}

    return {
        "steps": compared.steps,
        "before": [{"arms": list(start.arms), **spreads(start.before)} for start in compared.starts],
        "after": {arm.name: spreads(arm.after) for arm in compared.arms},
        "difference": {
            arm.name: spreads(lambda measure, arm=arm: compared.difference(arm, measure)) for arm in compared.arms[1:]
        },
    }


def _replace_file(path: Path, data: bytes) -> None:
    """Write the file whole or not at all: a reader may look at any time."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    aside.replace(path)


def _page_parts(name: str, results: Sequence[RunResult], at_once: int, elsewhere: int) -> Iterator[str]:
    """The experiment's tables in Markdown. `elsewhere`: how many runs were trained in other folders."""
    finished = [result for result in results if result.finished]
    if not finished:
        yield "*No run is finished yet.*"
        return
    beside = f" {elsewhere} of them were trained elsewhere, with times of that machine." if elsewhere else ""
    shared = f" Up to {at_once} runs went on at once, so times are those of a shared machine." if at_once > 1 else ""
    yield f"*Written by `raypoly experiment` ({__version__}): {_count_finished(results)}.{beside}{shared}*\n"
    for comparison in compare_arms(results):
        if any(arm.runs for arm in comparison.arms):
            yield comparison_text(comparison)
    yield f"![{name}: pass@k, strategies and reward by arm]({FIGURE})"


def comparison_text(comparison: ArmComparison) -> str:
    """The tables of arms with as many steps, in Markdown."""
    unlike = [
        f"{mine.arm}-s{mine.seed} and {theirs.arm}-s{theirs.seed} have no difference: they did not begin with the "
        "same weights, measured on the same problems."
        for mine, theirs in comparison.unlike
    ]
    parts = comparison_parts(comparison, unlike)
    return "\n".join(part.markdown() if isinstance(part, ReportTable) else f"{part}\n" for part in parts)


def comparison_parts(comparison: ArmComparison, unlike: Sequence[str]) -> Iterator[str | ReportTable]:
    """Tables and paragraphs of arms with as many steps; a paragraph's bold words are between `**`. The sentences
    `unlike` say which runs have no difference, and why."""
    known = any(interval_after(arm.runs, measure) for arm in comparison.arms for measure in MEASURES)
    explained = (
        "Means of the runs. In brackets the 95 % interval over problems; behind ±, the standard deviation over seeds."
        if known
        else "Means, and the range where there are several runs; no intervals, since numbers by problem are missing."
    )
    yield f"**After {comparison.steps} steps.** {explained}"
    starts = comparison.starts
    rows = [_start_row(start, alone=len(starts) == 1) for start in starts] + [_arm_row(arm) for arm in comparison.arms]
    yield ReportTable(("", "runs", *_HEADS, "s a step", "min a run"), rows)
    yield from unlike
    measured = measure_differences(comparison)
    if measured:
        yield from _measured_parts(measured)
        return
    others = [arm for arm in comparison.arms[1:] if comparison.pairs(arm)]
    if others:
        yield f"**Difference from {comparison.arms[0].name}**, by pairs of runs with the same seed."
        rows = [
            (
                arm.name,
                str(len(comparison.pairs(arm))),
                *(spread_cell(comparison.difference(arm, measure), sign="+") for measure in MEASURES),
            )
            for arm in others
        ]
        yield ReportTable(("", "pairs", *_HEADS), rows)


def _measured_parts(measured: Sequence[MeasuredDifference]) -> Iterator[str | ReportTable]:
    """The differences with what they show, and what such a table can show at all."""
    for reference in dict.fromkeys(each.reference for each in measured):
        found = [each for each in measured if each.reference == reference]
        origin = "where each run began" if reference == BEFORE else reference
        yield f"**Difference from {origin}**"
        rows = [_difference_row(each) for each in found]
        yield ReportTable(_DIFFERENCE_HEAD, rows, range(2, len(_DIFFERENCE_HEAD)))
    yield _differences_explained(measured)
    yield power_sentence(measured)


_DIFFERENCE_HEAD = (
    "",
    "",
    "seeds",
    "difference",
    "95 %, seeds and problems",
    "p",
    "Holm",
    "95 %, these seeds",
    "p",
    "±",
)


def _difference_row(each: MeasuredDifference) -> tuple[str, ...]:
    over, these = each.all_seeds, each.these_seeds
    return (
        each.arm,
        measure_name(each.measure),
        str(len(each.paired.by_seed)),
        f"{each.paired.mean:+.3f}",
        interval_text(over.interval, "+") if over else DASH,
        p_text(over.p_value) if over else DASH,
        p_text(each.holm),
        interval_text(these.interval, "+"),
        p_text(these.p_value),
        DASH if each.paired.seed_spread is None else f"{each.paired.seed_spread:.3f}",
    )


def _differences_explained(measured: Sequence[MeasuredDifference]) -> str:
    seeds = max(len(each.paired.by_seed) for each in measured)
    share = {2: "89 to 95", 3: "92 to 95"}.get(seeds)
    few = f" With {seeds} seeds the first interval held the truth in {share} % of simulations." if share else ""
    only = " One seed says nothing of others." if seeds == 1 else ""
    return (
        "The first interval and p are for other seeds and other problems (t, Satterthwaite's degrees of freedom); "
        f"Holm's p is that one, or with one seed the second, adjusted for all {len(measured)} differences here. The "
        "second interval and p are for these runs and other problems (t; random signs). ± is the standard deviation of "
        f"the seeds' differences.{few}{only} An interval that holds 0 does not show that there is no difference."
    )


def _start_row(start: Start, alone: bool) -> tuple[str, ...]:
    name = "before" if alone else f"before {', '.join(start.arms)}"
    cells = (mean_cell(start.before(m), interval_before(start.runs, m)) for m in MEASURES)
    return (name, str(len(start.runs)), *cells, "", "")


def _arm_row(arm: Arm) -> tuple[str, ...]:
    runs = str(len(arm.runs)) if len(arm.runs) == arm.planned else f"{len(arm.runs)} of {arm.planned}"
    step = spread_cell(arm.over_seeds(lambda run: run.step_seconds), decimals=2)
    minutes = spread_cell(arm.over_seeds(lambda run: run.seconds / 60), decimals=1)
    cells = (mean_cell(arm.after(measure), interval_after(arm.runs, measure)) for measure in MEASURES)
    return (f"**{arm.name}**", runs, *cells, step, minutes)


def mean_cell(spread: SeedSpread | None, interval: ConfidenceInterval | None) -> str:
    """Mean, interval over problems, and the spread of several seeds; without an interval as `spread_cell`."""
    if spread is None or interval is None:
        return spread_cell(spread)
    deviation = f" ±{spread.deviation:.3f}" if spread.count > 1 else ""
    return f"{spread.mean:.3f} {interval_text(interval)}{deviation}"


def interval_text(interval: ConfidenceInterval, sign: str = "") -> str:
    """`[0.058, 0.803]`."""
    return f"[{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def p_text(p_value: float) -> str:
    """Two figures below .1; never 0."""
    return "< .0001" if p_value < 0.0001 else f"{p_value:.2g}" if p_value < 0.1 else f"{p_value:.2f}"


def spread_cell(spread: SeedSpread | None, sign: str = "", decimals: int = 3) -> str:
    """Mean, and the range where there is more than one value."""
    if spread is None:
        return DASH
    mean, low, high = (f"{value:{sign}.{decimals}f}" for value in (spread.mean, spread.low, spread.high))
    return mean if spread.count == 1 else f"{mean} ({low} to {high})"


def _count_finished(results: Sequence[RunResult]) -> str:
    finished = sum(result.finished for result in results)
    missing = Counter(result.arm for result in results if not result.finished)
    lacking = "".join(f"{', ' if i else '; '}{arm} lacks {count}" for i, (arm, count) in enumerate(missing.items()))
    return f"{finished} of {len(results)} runs are finished{lacking}"
