"""The report of several runs: curves, differences by the code of experiments, the keys that differ, and rollouts.

path = write_comparison([Run("grpo-s0"), Run("poly-s0")], Path("comparison.html"))
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from raypoly.analysis.experiments.arm_comparison import ArmComparison, compare_arms
from raypoly.analysis.experiments.compared_runs import ComparedRun, compare_runs, differing_keys, why_not_compared
from raypoly.analysis.experiments.measured_differences import BEFORE, MeasuredDifference, measure_differences
from raypoly.analysis.experiments.run_result import measure_name
from raypoly.analysis.reports.comparison_figure import comparison_panels
from raypoly.analysis.reports.comparison_tables import comparison_parts, comparison_tables
from raypoly.analysis.reports.figure_files import named_panels, write_figures
from raypoly.analysis.reports.pages import charts, html_page, packaged_text, quiet, section
from raypoly.analysis.reports.rollout_browser import BROWSER_SCRIPT, MOST, rollout_browser
from raypoly.analysis.reports.rollout_sample import sample_rollouts
from raypoly.analysis.reports.run_page import later_section
from raypoly.analysis.reports.run_table import later_table
from raypoly.analysis.reports.whole_files import check_output, write_output
from raypoly.analysis.statistics.intervals import interval_text
from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.core.errors import UsageError
from raypoly.core.tables import DASH, ReportTable
from raypoly.core.visible_text import html_text, visible
from raypoly.run.run_files import RunFiles
from raypoly.run.run_identity import keys_without_effect

_CLAIM = 0.05
"""The p below which a difference is called shown."""
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_DRAWN = (
    "A line is the mean of an arm's runs, a band the range of its seeds; training curves are means of five steps, over "
    "the steps that all runs of the arm have."
)


def show_comparison(files: Sequence[RunFiles], out: Path, console: Console, figures: Path | None = None) -> None:
    """Write the page, and print what it says of differences and where it is; `figures`: a folder for those of a paper.
    Raises `UsageError` where it can't, and `StorageError` where the disk is full.
    """
    check_output(out, "--out")
    compared = compare(files)
    title = f"raypoly: {', '.join(run.name for run in compared.runs)}"
    page = html_page(title, _body(compared), packaged_text(BROWSER_SCRIPT))
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
    """Several runs beside each other, for a notebook: it shows curves, differences, and the keys that differ."""

    runs: Sequence[ComparedRun]
    comparisons: Sequence[ArmComparison]
    """A table each: runs of other lengths are compared apart."""

    @property
    def readable(self) -> dict[str, RunFiles]:
        """The runs whose files can be read, by name; a sentence says which can't, and why."""
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
        return _without_rollouts(self)


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
    """The differences between arms in words, and what they do not show; empty for none."""
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


def _body(compared: RunComparison) -> str:
    runs = compared.readable
    samples = {name: sample_rollouts(files, MOST // len(runs)) for name, files in runs.items()}
    return _without_rollouts(compared) + "\n" + section("Rollouts", rollout_browser(samples))


def _without_rollouts(compared: RunComparison) -> str:
    runs, comparisons = compared.runs, compared.comparisons
    panels = comparison_panels(runs, comparisons)
    return "\n".join(
        [
            f"<h1>{html_text(', '.join(run.name for run in runs))}</h1>",
            _runs_table(runs).html(),
            charts(panels),
            quiet(_DRAWN if panels else ""),
            section("What the differences say", _list(compared.sentences)),
            section("Differences", *(_html(comparison) for comparison in comparisons)),
            section("Measured again by raypoly evaluate", later_section(compared.readable)),
            section("Keys that differ", *_keys(runs)),
        ]
    )


def _runs_table(runs: Sequence[ComparedRun]) -> ReportTable:
    """For a page; a terminal has room for all but the last column. A dash where a run can't be read."""
    stages = any(run.result.begins_with for run in runs)
    rows = [
        (
            *(run.name, run.result.arm, str(run.result.seed)),
            DASH if run.result.trouble else f"{run.files.steps_done} of {run.result.steps}",
            *([run.result.begins_with or ""] if stages else []),
            run.files.uri,
        )
        for run in runs
    ]
    begins = ("begins with",) if stages else ()
    return ReportTable(("run", "arm", "seed", "steps", *begins, "where"), rows, {2, 3})


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html_text(each)}</li>' for each in sentences)}</ul>" if sentences else ""


def _html(comparison: ArmComparison) -> str:
    """The tables of an experiment, without its sentences on pairs, which the page has above."""
    if not any(arm.runs for arm in comparison.arms):
        return ""
    return "".join(map(_html_part, comparison_parts(comparison, unlike=())))


def _html_part(part: str | ReportTable) -> str:
    if isinstance(part, ReportTable):
        rows = [(row[0].strip("*"), *row[1:]) for row in part.rows]  # bold in Markdown
        return replace(part, rows=rows).html()
    bold = _BOLD.sub(r"<b>\1</b>", html_text(part))
    return f"<p>{bold}</p>"


def _keys(runs: Sequence[ComparedRun]) -> Iterator[str]:
    """A table of the keys that affect results, and one that is folded of the others."""
    values = [dotted_values(run.files.config) for run in runs]
    keys, free = differing_keys(values), keys_without_effect(Config) - {"train.steps", "evaluate.samples"}
    head = ("key", *(run.name for run in runs))
    rows = {key: (key, *(json.dumps(each[key]) if key in each else DASH for each in values)) for key in keys}
    counted = [rows[key] for key in keys if key not in free]
    others = [rows[key] for key in keys if key in free]
    yield ReportTable(head, counted, ()).html() if counted else "<p>No key that affects results.</p>"
    if others:
        yield f"<details><summary>keys that affect no result</summary>{ReportTable(head, others, ()).html()}</details>"
