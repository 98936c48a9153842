"""The report of several runs: curves, an experiment's differences, the keys that differ, and rollouts.

show_comparison([Run("grpo-s0"), Run("poly-s0")], Path("comparison.html"), Console())
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup
from rich.console import Console

from raypoly.analysis.experiments.arm_comparison import (
    BEFORE,
    ArmComparison,
    MeasuredDifference,
    compare_arms,
    measure_differences,
)
from raypoly.analysis.experiments.compared_runs import ComparedRun, compare_runs, differing_keys, why_not_compared
from raypoly.analysis.experiments.run_result import measure_name
from raypoly.analysis.reports.charts import comparison_panels
from raypoly.analysis.reports.comparison_tables import comparison_parts, comparison_tables
from raypoly.analysis.reports.figures import draw_grid, named_panels, write_figures
from raypoly.analysis.reports.metric_charts import Charts, arm_charts
from raypoly.analysis.reports.pages import html_page, render
from raypoly.analysis.reports.rollout_browser import MOST, rollout_browser, sample_rollouts
from raypoly.analysis.reports.run_table import later_table
from raypoly.analysis.statistics.intervals import interval_text
from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.core.errors import UsageError
from raypoly.core.tables import DASH, ReportTable
from raypoly.core.text import visible
from raypoly.core.whole_files import check_output, write_output
from raypoly.run.run_files import RunFiles
from raypoly.run.run_identity import keys_without_effect

_CLAIM = 0.05  # the p below which a difference is called shown


def show_comparison(files: Sequence[RunFiles], out: Path, console: Console, figures: Path | None = None) -> None:
    """Write the page, print its sentences and its place, and write a paper's `figures` to that folder.

    Raises `UsageError` where it can't, and `StorageError` where the disk is full.
    """
    check_output(out, "--out")
    compared = compare(files)
    files_of = compared.readable
    samples = {name: sample_rollouts(run, MOST // len(files_of)) for name, run in files_of.items()}
    numbers = arm_charts((run.result.arm, run.files) for run in compared.runs if not run.result.trouble)
    page = html_page(f"raypoly: {compared.title}", _body(compared, rollout_browser(samples), numbers))
    write_output(out, page.encode())
    table = _runs_table(compared.runs)
    console.print(replace(table, head=table.head[:-1], rows=[row[:-1] for row in table.rows]))
    said = [*map(visible, compared.sentences), f"report: {out.absolute()}"]
    if figures is not None:
        said.append(f"{len(compared.write_figures(figures))} files of figures and tables: {figures.absolute()}")
    for sentence in said:
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class RunComparison:
    """For a notebook, which shows curves, differences, and the keys that differ."""

    runs: Sequence[ComparedRun]
    comparisons: Sequence[ArmComparison]
    """One for each length of training."""

    @property
    def title(self) -> str:
        return ", ".join(run.name for run in self.runs)

    @property
    def readable(self) -> dict[str, RunFiles]:
        """By name, the runs whose files can be read."""
        return {run.name: run.files for run in self.runs if not run.result.trouble}

    @property
    def sentences(self) -> list[str]:
        """The differences in words, and which runs have none."""
        said = [each for comparison in self.comparisons for each in plain_sentences(measure_differences(comparison))]
        return [*said, *why_not_compared(self.runs, self.comparisons)]

    def write_figures(self, folder: str | Path) -> list[Path]:
        """Each panel and table as files for a paper. Raises `UsageError` where the folder can't be written."""
        compared = [each for each in self.comparisons if any(arm.runs for arm in each.arms)]
        tables = {
            name + (f"_{each.steps}_steps" if len(compared) > 1 else ""): table
            for each in compared
            for name, table in comparison_tables(each).items()
        }
        if (later := later_table(self.readable)).rows:
            tables["later"] = later
        return write_figures(
            Path(folder).expanduser(), named_panels(comparison_panels(self.runs, self.comparisons)), tables
        )

    def _repr_html_(self) -> str:
        return _body(self)


def compare(runs: Iterable[RunFiles | str | Path]) -> RunComparison:
    """`compare([Run("grpo-s0"), "poly-s0"])`: the first run's arm is what others differ from.

    Raises `UsageError` for no run, for a place that is no run's, and for a run that is named twice.
    """
    opened = [run if isinstance(run, RunFiles) else RunFiles(run) for run in runs]
    if not opened:
        raise UsageError("Name a run, or several to compare.")
    folders = [run.store.location.folder for run in opened]
    places = {folder.resolve() if folder else run.uri for folder, run in zip(folders, opened, strict=True)}
    if len(places) < len(opened):
        raise UsageError("A run is named twice: name each run once.")
    found = compare_runs(opened)
    return RunComparison(found, compare_arms([run.result for run in found]))


def plain_sentences(measured: Sequence[MeasuredDifference]) -> list[str]:
    """Differences between arms in words, and what they do not show; empty for none."""
    between = [each for each in measured if each.reference != BEFORE]
    if not between:
        return []
    shown = [f"{measure_name(each.measure)} of {each.arm}" for each in between if each.holm < _CLAIM]
    seeds = min(len(each.paired.by_seed) for each in between)
    reach = "these runs on other problems" if seeds == 1 else "other seeds and other problems"
    return [
        *map(_sentence, between),
        f"Below p = {_CLAIM:g}, adjusted for all {len(measured)} differences of the table (Holm): "
        + (f"{'; '.join(shown)}. The others may be chance." if shown else "none. All of them may be chance."),
        f"This holds for {reach}. "
        + ("One seed does not show what another one would give. " if seeds == 1 else "")
        + "It says nothing of other models, keys or lengths of training, and where no difference is shown there may "
        "still be one.",
    ]


def _sentence(each: MeasuredDifference) -> str:
    interval, mean = each.tested.interval, each.paired.mean
    way = "above" if mean >= 0 else "below"
    holds = " It holds 0: no difference is shown." if not interval.excludes(0.0) else ""
    ends = f"In {measure_name(each.measure)}, {each.arm} ends {abs(mean):.3f} {way} {each.reference}"
    if not math.isfinite(interval.low):
        return f"{ends}, by one problem, which says nothing of others."
    return f"{ends}; the 95 % interval is {interval_text(interval, '+')}.{holds}"


def _body(compared: RunComparison, rollouts: Markup | str = "", numbers: Charts | None = None) -> Markup:
    # a notebook takes no scripts, and a picture for charts
    comparisons = [each for each in compared.comparisons if any(arm.runs for arm in each.arms)]
    return render(
        "comparison.html",
        title=compared.title,
        runs=_runs_table(compared.runs),
        numbers=numbers,
        picture=None
        if numbers
        else draw_grid("", {"": comparison_panels(compared.runs, compared.comparisons)}, columns=3),
        sentences=compared.sentences,
        # without the sentences on pairs, which the page has above
        parts=[_shown(part) for each in comparisons for _, part in comparison_parts(each)],
        later=later_table(compared.readable),
        **_keys(compared.runs),
        rollouts=rollouts,
    )


def _shown(part: str | ReportTable) -> str | ReportTable:
    if isinstance(part, str):
        return part
    return replace(part, rows=[(row[0].strip("*"), *row[1:]) for row in part.rows])


def _runs_table(runs: Sequence[ComparedRun]) -> ReportTable:
    # a terminal has room for all but the last column
    rows = [
        (
            *(run.name, run.result.arm, str(run.result.seed)),
            DASH if run.result.trouble else f"{run.files.steps_done} of {run.result.steps}",
            run.files.uri,
        )
        for run in runs
    ]
    return ReportTable(("run", "arm", "seed", "steps", "where"), rows, {2, 3})


def _keys(runs: Sequence[ComparedRun]) -> dict[str, ReportTable]:
    values = [dotted_values(run.files.config) for run in runs]
    free = keys_without_effect(Config) - {"train.steps", "evaluate.samples"}
    head = ("key", *(run.name for run in runs))
    rows = [(key, *(json.dumps(it[key]) if key in it else DASH for it in values)) for key in differing_keys(values)]
    return {
        "keys": ReportTable(head, [row for row in rows if row[0] not in free], ()),
        "free_keys": ReportTable(head, [row for row in rows if row[0] in free], ()),
    }
