"""A run's report: `report.html`, which opens offline, `figure.png`, and a table in the terminal.

All that a model, a judge or a user wrote passes through `raypoly.core.visible_text`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from raypoly.analysis.reports.figure_files import named_panels, write_figures
from raypoly.analysis.reports.figures import SMOOTHING
from raypoly.analysis.reports.judge_tables import judge_rows
from raypoly.analysis.reports.pages import charts, html_page, image, packaged_text, quiet, section
from raypoly.analysis.reports.role_table import role_table
from raypoly.analysis.reports.rollout_browser import BROWSER_SCRIPT, MOST, rollout_browser
from raypoly.analysis.reports.rollout_sample import sample_rollouts
from raypoly.analysis.reports.run_figure import draw_run, run_panels
from raypoly.analysis.reports.run_table import first_and_last, later_table, results_note, results_table
from raypoly.analysis.reports.step_times import Rows, step_time_panels, tail_words, time_rows
from raypoly.analysis.reports.whole_files import check_output, write_output
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.settings import dump
from raypoly.core.tables import ReportTable, number
from raypoly.core.visible_text import html_text
from raypoly.run.run_files import FIGURE, REPORT, RunFiles
from raypoly.run.sinks import MEASURES

_SCAFFOLDS = ("scaffolds", "scaffold_differences")
_TIME_HEAD = ("stage", "seconds at work", "waited for", "share")
_MEASURE_HEAD = ("", f"first {SMOOTHING} steps", f"last {SMOOTHING} steps", "least", "most")


def write_report(run: RunFiles, out: Path | None = None) -> str:
    """Write `report.html` and `figure.png` beside the run's files, from them, or to `out` the page alone, which has the
    figure's panels; returns the page's path or URI.

    Raises `StorageError` where they can't be written, and `UsageError` where `out` can't be.
    """
    if out is not None:
        check_output(out, "--out")
    page = html_page(f"raypoly: {run.name}", _body(run), packaged_text(BROWSER_SCRIPT)).encode()
    if out is not None:
        write_output(out, page)
        return str(out.absolute())
    run.store.put_mutable(FIGURE, draw_run(run))
    run.store.put_mutable(REPORT, page)
    return run.store.place(REPORT)


def show_results(run: RunFiles, console: Console, figures: Path | None = None, out: Path | None = None) -> None:
    """Write report and figure, and print the results and where the files are; `figures`: a folder for those of a paper;
    `out`: as in `write_report`.

    Raises `UsageError` where these can't be written.
    """
    page = write_report(run, out)
    tables = run_tables(run)
    if run.evaluations:
        console.print()
        console.print(tables.get("results", "Not evaluated on the test split yet."))
        for name in _SCAFFOLDS:
            if name in tables:
                console.print(tables[name])
        if note := results_note(run.summary):
            console.print(note, highlight=False)
    if "later" in tables:
        console.print("Measured again by raypoly evaluate:", highlight=False)
        console.print(tables["later"])
    if "drafts" in tables:
        console.print(tables["drafts"])
    for name, path in [*([("figure", run.store.place(FIGURE))] if out is None else []), ("report", page)]:
        console.print(f"{name}: {path}", highlight=False, markup=False, soft_wrap=True)
    if figures is not None:
        panels = named_panels([*run_panels(run), *step_time_panels(run.rows)])
        written = write_figures(figures, panels, tables)
        told = f"{len(written)} files of figures and tables: {figures.absolute()}"
        console.print(told, highlight=False, markup=False, soft_wrap=True)


def run_tables(run: RunFiles) -> dict[str, ReportTable]:
    """The page's tables of what was measured, by name; those that have rows."""
    found = {
        "results": results_table(run.summary),
        **dict(zip(_SCAFFOLDS, run_scaffolds(run), strict=False)),
        "later": later_table({run.name: run}),
        "times": ReportTable(_TIME_HEAD, time_rows(run.summary.get("stage_seconds", {}), run.rows)),
        "drafts": role_table(run.rows),
        "judge": ReportTable(("", ""), judge_rows(run)),
        "objective": ReportTable(_MEASURE_HEAD, measure_rows(run.rows)),
    }
    return {name: table for name, table in found.items() if table.rows}


def other_arm_overrides(objective: str, overrides: Sequence[str]) -> list[str]:
    """The overrides of the same run with GRPO (Poly-EPO where this was GRPO), in a folder of its own."""
    other = "poly_epo" if objective == "grpo" else "grpo"
    kept = [text for text in overrides if not text.strip().startswith(("objective.", "run.dir=", "run.fresh="))]
    return [*kept, f"objective.name={other}"]


def notebook_html(run: RunFiles) -> str:
    """Head, curves and results, without page and style."""
    return _head(run) + image(draw_run(run), "pass@k and strategies over the steps") + _results(run.summary)


def _body(run: RunFiles) -> str:
    summary = run.summary
    config = (
        f"<details><summary>every key as it was resolved</summary><pre>{html_text(dump(run.config))}</pre></details>"
    )
    judge, measures = judge_rows(run), measure_rows(run.rows)
    return "\n".join(
        [
            _head(run),
            charts(run_panels(run)),
            section("Before and after", _results(summary)),
            section("Scaffolds", *(table.html() for table in run_scaffolds(run))),
            section("Measured again by raypoly evaluate", later_section({run.name: run})),
            section("Where the time went", _times(summary.get("stage_seconds", {}), run.rows)),
            section("Drafts and attempts", _roles(run.rows)),
            section("Judge", _table(("", ""), judge)),
            section(
                "What the objective measured",
                _table(_MEASURE_HEAD, measures),
                quiet("Means over the groups of a step, and over steps." if measures else ""),
            ),
            section("Pauses", _pauses(summary.get("pauses", []))),
            section("Problems set aside", _set_aside(summary.get("set_aside", {}))),
            section("Damaged files, set aside", _damage(summary)),
            section("Rollouts", rollout_browser({run.name: sample_rollouts(run, MOST)})),
            section("Config", config),
        ]
    )


def run_scaffolds(run: RunFiles) -> list[ReportTable]:
    """The tables of `scaffold_tables` of the run's last evaluation of the test split; none where it asked directly, or
    where its samples can't be read, which the browser of rollouts says."""
    before, after = first_and_last(run.summary)
    last = after or before
    if last is None or "scaffold" not in last:
        return []
    from raypoly.analysis.evaluation.evaluation_tables import scaffold_tables  # brings scipy

    try:
        samples = run.samples(last["step"], "test")
    except (CorruptData, StorageError, UsageError):
        return []
    return scaffold_tables(last, samples)


def later_section(runs: Mapping[str, RunFiles]) -> str:
    """The table of `later_table`; nothing where it has no rows."""
    table = later_table(runs)
    return table.html() if table.rows else ""


def _head(run: RunFiles) -> str:
    train = run.config.train
    facts = [
        f"objective {run.config.objective.name}",
        f"seed {train.seed}",
        f"{run.steps_done} of {train.steps} steps",
        f"{train.prompts_per_step} problems x {train.rollouts} rollouts a step",
        f"problems: {run.config.problems.source}" + ("" if run.config.problems.budgets else " without budgets"),
    ]
    return f"<h1>{html_text(run.name)}</h1><p>{html_text(', '.join(facts))}</p>{quiet(run.uri)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int] | None = None) -> str:
    """Nothing without rows."""
    return ReportTable(head, rows, numbers).html() if rows else ""


def _results(summary: Mapping[str, Any]) -> str:
    before, _ = first_and_last(summary)
    if before is None:
        return quiet("Not evaluated on the test split yet.")
    told = f"{before.get('samples', '?')} samples a problem, test split. {results_note(summary)}"
    return results_table(summary).html() + quiet(told.rstrip())


def _times(stages: Mapping[str, float], rows: Rows) -> str:
    lines = time_rows(stages, rows)
    if not lines:
        return quiet("Not known yet.")
    note = (
        "Stages run beside each other, so their times at work may add up to more than the total. A step waits for one "
        "thing at a time: for generation while it goes on, then for the learner, the judge, the scorers, the move of "
        "the weights; for none of them when idle."
    )
    picture = charts(step_time_panels(rows))
    table = _table(_TIME_HEAD, lines)
    return picture + table + quiet(f"{note} {tail_words(rows)}".rstrip())


def _roles(rows: Rows) -> str:
    """Nothing for a run without drafts."""
    table = role_table(rows)
    note = "Tokens that were sampled; given responses cost none. A draft that is an attempt counts as a draft."
    return table.html() + quiet(note) if table.rows else ""


def measure_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The objective's measures, the rows' `objective/...` numbers, one line for each: its name, the means of its
    first and of its last `SMOOTHING` steps, least and most. Steps without a number are left out."""
    names = sorted({key for row in rows for key in row if key.startswith(MEASURES)})
    return [
        _measure_row(name.removeprefix(MEASURES), [row[name] for row in rows if row.get(name) is not None])
        for name in names
    ]


def _measure_row(name: str, values: Sequence[float]) -> tuple[str, ...]:
    if not values:
        return (name, *[number(None)] * (len(_MEASURE_HEAD) - 1))
    first, last = values[:SMOOTHING], values[-SMOOTHING:]
    return (name, *map(number, (sum(first) / len(first), sum(last) / len(last), min(values), max(values))))


def _pauses(pauses: Sequence[Mapping[str, Any]]) -> str:
    rows = [(str(pause["since"]), _length(pause), str(pause["reason"])) for pause in pauses]
    return _table(("since", "seconds", "why"), rows, {1})


def _length(pause: Mapping[str, Any]) -> str:
    """Seconds, or why nobody knows them."""
    if pause.get("seconds") is not None:
        return f"{pause['seconds']:,.1f}"
    again = pause.get("interrupted")
    return f"unknown: the run was killed in it, and started again {again}" if again else "has not ended"


def _set_aside(problems: Mapping[str, Mapping[str, Any]]) -> str:
    if not problems:
        return ""
    rows = [(name, str(entry["groups"]), str(entry["reason"])) for name, entry in problems.items()]
    said = "<p>Their tests could not be run: these groups had no reward and no gradient.</p>"
    return said + _table(("problem", "groups", "reason"), rows)


def _damage(summary: Mapping[str, Any]) -> str:
    """Files that were moved away because they were damaged, and steps whose rollouts are lost."""
    damaged, missing = summary.get("damaged", []), summary.get("missing_rollouts", [])
    if not damaged and not missing:
        return ""
    rows = [(str(entry["key"]), str(entry["moved_to"]), str(entry["reason"])) for entry in damaged]
    lost = f"<p>The rollouts of steps {html_text(', '.join(missing))} are lost.</p>" if missing else ""
    return ReportTable(("file", "now", "why"), rows, set()).html() + lost
