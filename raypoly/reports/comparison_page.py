"""The report of several runs: curves, differences by the code of experiments, the keys that differ, and rollouts.

path = write_comparison([Run("grpo-s0"), Run("poly-s0")], Path("comparison.html"))
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.experiments.arm_comparison import ArmComparison, compare_arms
from raypoly.experiments.compared_runs import ComparedRun, compare_runs, differing_keys, why_not_compared
from raypoly.experiments.measured_differences import BEFORE, MeasuredDifference, measure_differences
from raypoly.reports.comparison_figure import comparison_panels
from raypoly.reports.experiment_report import comparison_parts, interval_text, measure_name
from raypoly.reports.pages import charts, html_page, packaged_text, quiet, section
from raypoly.reports.rollout_browser import BROWSER_SCRIPT, MOST, rollout_browser
from raypoly.reports.rollout_sample import sample_rollouts
from raypoly.reports.run_page import later_section
from raypoly.reports.tables import ReportTable
from raypoly.reports.visible_text import html_text, visible
from raypoly.run_files import RunFiles
from raypoly.run_identity import dotted_values, keys_without_effect

_CLAIM = 0.05
"""The p below which a difference is called shown."""
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_DRAWN = "A line is the mean of an arm's runs, a band the range of its seeds; training curves are means of five steps."


def show_comparison(files: Sequence[RunFiles], out: Path, console: Console) -> None:
    """Write the page, and print what it says of differences and where it is. Raises `UsageError` where it can't."""
    if len({run.uri for run in files}) < len(files):
        raise UsageError("A run is named twice: name each run once.")
    runs = compare_runs(files)
    comparisons = compare_arms([run.result for run in runs])
    page = html_page(
        f"raypoly: {', '.join(run.name for run in runs)}", _body(runs, comparisons), packaged_text(BROWSER_SCRIPT)
    )
    try:
        out.write_text(page, "utf-8")
    except OSError as error:
        raise UsageError(
            f"--out {out} can't be written ({error.strerror}): name a file in a folder of yours."
        ) from None
    table = _runs_table(runs)
    console.print(replace(table, head=table.head[:-1], rows=[row[:-1] for row in table.rows]).rich())
    sentences = [said for each in comparisons for said in plain_sentences(measure_differences(each))]
    for sentence in [*sentences, *why_not_compared(runs, comparisons)]:
        console.print(visible(sentence), highlight=False, markup=False, soft_wrap=True)
    console.print(f"report: {out.absolute()}", highlight=False, markup=False, soft_wrap=True)


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
    holds = " It holds 0: no difference is shown." if interval.low <= 0 <= interval.high else ""
    return (
        f"In {measure_name(each.measure)}, {each.arm} ends {abs(mean):.3f} {way} {each.reference}; the 95 % interval "
        f"is {interval_text(interval, '+')}.{holds}"
    )


def _body(runs: Sequence[ComparedRun], comparisons: Sequence[ArmComparison]) -> str:
    named = {run.name: run.files for run in runs}
    samples = {name: sample_rollouts(files, MOST // len(runs)) for name, files in named.items()}
    sentences = [said for each in comparisons for said in plain_sentences(measure_differences(each))]
    unlike = why_not_compared(runs, comparisons)
    panels = comparison_panels(runs, comparisons)
    return "\n".join(
        [
            f"<h1>{html_text(', '.join(named))}</h1>",
            _runs_table(runs).html(),
            charts(panels),
            quiet(_DRAWN if panels else ""),
            section("What the differences say", _list([*sentences, *unlike])),
            section("Differences", *(_html(comparison) for comparison in comparisons)),
            section("Measured again by raypoly evaluate", later_section(named)),
            section("Keys that differ", *_keys(runs)),
            section("Rollouts", rollout_browser(samples)),
        ]
    )


def _runs_table(runs: Sequence[ComparedRun]) -> ReportTable:
    """For a page; a terminal has room for all but the last column."""
    rows = [
        (run.name, run.result.arm, str(run.result.seed), f"{run.files.steps_done} of {run.result.steps}", run.files.uri)
        for run in runs
    ]
    return ReportTable(("run", "arm", "seed", "steps", "where"), rows, {2, 3})


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
    rows = {key: (key, *(json.dumps(each[key]) for each in values)) for key in keys}
    counted = [rows[key] for key in keys if key not in free]
    others = [rows[key] for key in keys if key in free]
    yield ReportTable(head, counted, ()).html() if counted else "<p>No key that affects results.</p>"
    if others:
        yield f"<details><summary>keys that affect no result</summary>{ReportTable(head, others, ()).html()}</details>"
