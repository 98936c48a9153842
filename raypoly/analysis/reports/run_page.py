"""A run's report: `report.html`, which opens offline, `figure.png`, and a table in the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console

from raypoly.analysis.reports.charts import draw_run, run_panels, time_panels
from raypoly.analysis.reports.figures import named_panels, write_figures
from raypoly.analysis.reports.metric_charts import run_charts
from raypoly.analysis.reports.pages import html_page, render
from raypoly.analysis.reports.rollout_browser import MOST, rollout_browser, sample_rollouts
from raypoly.analysis.reports.run_table import (
    damage_table,
    first_and_last,
    judge_table,
    later_table,
    leading_terms,
    measure_table,
    pause_table,
    results_table,
    role_table,
    set_aside_table,
    tail_words,
    time_table,
)
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.settings import dump
from raypoly.core.tables import ReportTable
from raypoly.core.whole_files import check_output, write_output
from raypoly.run.run_files import FIGURE, REPORT, RunFiles

_SCAFFOLDS = ("scaffolds", "scaffold_differences")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_IN_CARD = {
    "train": ("prompts_per_step", "rollouts", "lr", "seed"),
    "model": ("dtype", "lora_rank"),
    "loss": ("name",),
    "problems": ("source",),
    "generator": ("temperature", "max_tokens"),
}
"""Keys of the config in a model's card."""


def write_report(run: RunFiles, out: Path | None = None) -> str:
    """Write `report.html` and `figure.png` beside the run's files, or the page alone to `out`; returns its place.

    Raises `StorageError` where they can't be written, and `UsageError` where `out` can't be.
    """
    if out is not None:
        check_output(out, "--out")
    page = run_html(run).encode()
    if out is not None:
        write_output(out, page)
        return str(out.absolute())
    run.store.put_mutable(FIGURE, draw_run(run))
    run.store.put_mutable(REPORT, page)
    return run.store.place(REPORT)


def show_results(run: RunFiles, console: Console, figures: Path | None = None, out: Path | None = None) -> None:
    """Write report and figure, and print the results and where the files are; `figures`: a folder for a paper's.

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
    if "later" in tables:
        console.print("Measured again by raypoly evaluate:", highlight=False)
        console.print(tables["later"])
    if "drafts" in tables:
        console.print(tables["drafts"])
    for sentence in leading_terms(run):
        console.print(sentence, highlight=False)
    said = [f"report: {page}"] if out is not None else [f"figure: {run.store.place(FIGURE)}", f"report: {page}"]
    if figures is not None:
        written = write_figures(figures, named_panels([*run_panels(run), *time_panels(run.rows)]), tables)
        said.append(f"{len(written)} files of figures and tables: {figures.absolute()}")
    for sentence in said:
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def model_card(run: RunFiles) -> str:
    """README.md of the finished model on the Hugging Face hub. It names no folder of this machine."""
    config, path = run.config, run.config.model.path
    base = path if path and _HUB_NAME.fullmatch(path) and not Path(path).exists() else None
    settings = [
        (f"{section}.{key}", str(getattr(getattr(config, section), key)))
        for section, keys in _IN_CARD.items()
        for key in keys
    ]
    rows = [{f"step/{key}": row.get(key) for key in ("reward", "strategies_correct")} for row in run.rows]
    return render(
        "model_card.md",
        base=base,
        name=run.name,
        versions=run.versions,
        steps=run.summary["steps"],
        config=config,
        results=results_table(run.summary),
        steps_table=measure_table(rows, "step/"),
        settings=ReportTable(("key", "value"), settings),
    )


def run_tables(run: RunFiles) -> dict[str, ReportTable]:
    """By name, those that have rows."""
    found = {
        "results": results_table(run.summary),
        **dict(zip(_SCAFFOLDS, _scaffolds(run), strict=False)),
        "later": later_table({run.name: run}),
        "times": time_table(run.summary.get("stage_seconds", {}), run.rows),
        "drafts": role_table(run.rows),
        "judge": judge_table(run),
        "reward": measure_table(run.rows, "reward/"),
        "objective": measure_table(run.rows),
    }
    return {name: table for name, table in found.items() if table.rows}


def _scaffolds(run: RunFiles) -> list[ReportTable]:
    # None where the evaluation asked directly.
    before, after = first_and_last(run.summary)
    last = after or before
    if last is None or "scaffold" not in last:
        return []
    from raypoly.analysis.evaluation.evaluation_tables import scaffold_tables  # brings scipy

    try:
        samples = run.samples(last["step"], "test")
    except (CorruptData, StorageError, UsageError):  # which the browser of rollouts says
        return []
    return scaffold_tables(last, samples)


def other_arm_overrides(objective: str, overrides: Sequence[str]) -> list[str]:
    """The overrides of the same run with GRPO (Poly-EPO where this was GRPO), in a folder of its own."""
    other = "poly_epo" if objective == "grpo" else "grpo"
    own = ("objective.", "run.dir=", "run.fresh=", "run.push_to_hub=")
    kept = [text for text in overrides if not text.strip().startswith(own)]
    return [*kept, f"objective.name={other}"]


def notebook_html(run: RunFiles) -> str:
    """Head, curves and results, without page and style."""
    return render("run.html", **_head(run), picture=draw_run(run))


def run_html(run: RunFiles, live: str = "") -> str:
    """The run's page; `live` as `html_page`. Raises `CorruptData` and `StorageError`."""
    return html_page(f"raypoly: {run.name}", _body(run), live)


def told_facts(run: RunFiles) -> str:
    """What was trained, and how far it is, in one line."""
    train = run.config.train
    facts = [
        f"objective {run.config.objective.name}",
        f"seed {train.seed}",
        f"{run.steps_done} of {train.steps} steps",
        f"{train.prompts_per_step} problems x {train.rollouts} rollouts a step",
        f"problems: {run.config.problems.source}" + ("" if run.config.problems.budgets else " without budgets"),
    ]
    return ", ".join(facts)


def _head(run: RunFiles) -> dict[str, Any]:
    before, _ = first_and_last(run.summary)
    return {"run": run, "facts": told_facts(run), "before": before, "tables": run_tables(run)}


def _body(run: RunFiles) -> Markup:
    return render(
        "run.html",
        **_head(run),
        picture=None,
        numbers=run_charts(run),
        tail=tail_words(run.rows),
        leading=leading_terms(run),
        pauses=pause_table(run.summary),
        set_aside=set_aside_table(run.summary),
        damaged=damage_table(run.summary),
        lost=", ".join(run.summary.get("missing_rollouts", [])),
        rollouts=rollout_browser({run.name: sample_rollouts(run, MOST)}),
        config=dump(run.config),
    )
