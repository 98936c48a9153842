"""A run's report: `report.html`, which opens offline, `figure.png`, and a table in the terminal.

All that a model, a judge or a user wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console
from tokenizers import Tokenizer

from raypoly.metrics.sinks import MEASURES
from raypoly.reports.figures import SMOOTHING
from raypoly.reports.judge_tables import judge_rows
from raypoly.reports.pages import html_page, image, quiet, section
from raypoly.reports.run_figure import draw_run
from raypoly.reports.run_table import first_and_last, results_note, results_table
from raypoly.reports.step_times import Rows, draw_step_times, tail_words, time_rows
from raypoly.reports.tables import ReportTable, number
from raypoly.run_files import FIGURE, REPORT, RunFiles
from raypoly.settings import dump
from raypoly.store import Store

_MEASURE_HEAD = ("", f"first {SMOOTHING} steps", f"last {SMOOTHING} steps", "least", "most")
_SAMPLE_COLUMNS = ("problem_id", "prompt_tokens", "text", "status", "detail", "strategy", "label")
_MOST_SAMPLES = 12
_TOKENIZER = "model/tokenizer.json"


def write_report(run: RunFiles) -> str:
    """Write `report.html` and `figure.png` beside the run's files, from them; returns the page's path or URI.

    Raises `StorageError` where they can't be written.
    """
    png = draw_run(run)
    run.store.put_mutable(FIGURE, png)
    run.store.put_mutable(REPORT, html_page(f"raypoly: {run.name}", _body(run, png)).encode())
    return run.store.place(REPORT)


def show_results(run: RunFiles, console: Console) -> None:
    """Write report and figure, and print the results and where the files are."""
    page = write_report(run)
    if run.evaluations:
        console.print()
        console.print(results_table(run.summary).rich())
        if note := results_note(run.summary):
            console.print(note, highlight=False)
    for name, path in (("figure", run.store.place(FIGURE)), ("report", page)):
        console.print(f"{name}: {path}", highlight=False, markup=False, soft_wrap=True)


def other_arm_overrides(objective: str, overrides: Sequence[str]) -> list[str]:
    """The overrides of the same run with GRPO (Poly-EPO where this was GRPO), in a folder of its own."""
    other = "poly_epo" if objective == "grpo" else "grpo"
    kept = [text for text in overrides if not text.strip().startswith(("objective.", "run.dir=", "run.fresh="))]
    return [*kept, f"objective.name={other}"]


def notebook_html(run: RunFiles) -> str:
    """Head, curves and results, without page and style."""
    return _head(run) + _curves(draw_run(run)) + _results(run.summary)


def _body(run: RunFiles, png: bytes) -> str:
    summary = run.summary
    config = f"<details><summary>every key as it was resolved</summary><pre>{escape(dump(run.config))}</pre></details>"
    judge, measures = judge_rows(run), measure_rows(run.rows)
    return "\n".join(
        [
            _head(run),
            _curves(png),
            section("Before and after", _results(summary)),
            section("Where the time went", _times(summary.get("stage_seconds", {}), run.rows)),
            section("Judge", _table(("", ""), judge)),
            section(
                "What the objective measured",
                _table(_MEASURE_HEAD, measures),
                quiet("Means over the groups of a step, and over steps." if measures else ""),
            ),
            section("Pauses", _pauses(summary.get("pauses", []))),
            section("Problems set aside", _set_aside(summary.get("set_aside", {}))),
            section("Damaged files, set aside", _damage(summary)),
            section("Sample rollouts", _samples(run)),
            section("Config", config),
        ]
    )


def _head(run: RunFiles) -> str:
    train = run.config.train
    facts = [
        f"objective {run.config.objective.name}",
        f"seed {train.seed}",
        f"{run.steps_done} of {train.steps} steps",
        f"{train.prompts_per_step} problems x {train.rollouts} rollouts a step",
        f"problems: {run.config.problems.source}" + ("" if run.config.problems.budgets else " without budgets"),
    ]
    return (
        f'<h1>{escape(run.name)}</h1><p>{escape(", ".join(facts))}<br><span class="quiet">{escape(run.uri)}</span></p>'
    )


def _curves(png: bytes) -> str:
    return image(png, "pass@k and strategies over the steps")


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
    picture = image(draw_step_times(rows), "what the steps waited for")
    table = _table(("stage", "seconds at work", "waited for", "share"), lines)
    return picture + table + quiet(f"{note} {tail_words(rows)}".rstrip())


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
    lost = f"<p>The rollouts of steps {escape(', '.join(missing))} are lost.</p>" if missing else ""
    return ReportTable(("file", "now", "why"), rows, set()).html() + lost


def _samples(run: RunFiles) -> str:
    """Rollouts of the newest step that is kept, one for each (verdict, strategy), passed ones first."""
    chosen: dict[tuple[str, str], Mapping[str, Any]] = {}
    if run.steps:
        table = run.rollouts(run.steps[-1])
        for row in table.select([name for name in _SAMPLE_COLUMNS if name in table.column_names]).to_pylist():
            chosen.setdefault((row.get("status") or "not scored", row.get("strategy") or ""), row)
    order = sorted(chosen.items(), key=lambda item: (item[0][0] != "passed", item[0]))[:_MOST_SAMPLES]
    decode = _decoder(run.store)
    return "".join(_sample(run.steps[-1], row, decode) for _, row in order) or quiet("None kept yet.")


def _sample(step: int, row: Mapping[str, Any], decode: Callable[[Sequence[int]], str]) -> str:
    status = row.get("status") or "not scored"
    judged = f", judged {row['label']} in its group" if row.get("label") else ""
    strategy = (row.get("strategy") or "no strategy") + judged
    where = f"step {step}, {row.get('problem_id', '')} {row.get('detail') or ''}"
    return (
        f'<div class="{"sample passed" if status == "passed" else "sample"}"><b>{escape(status)}</b> &middot; '
        f'{escape(strategy)} &middot; <span class="quiet">{escape(where)}</span><pre><span class="quiet">'
        f"{escape(decode(row.get('prompt_tokens') or []))}</span>{escape(str(row.get('text', '')))}</pre></div>"
    )


def _decoder(store: Store) -> Callable[[Sequence[int]], str]:
    """Token ids to text by the tokenizer beside the final weights; no text where it is not there (yet)."""
    if not store.exists(_TOKENIZER):
        return lambda tokens: ""
    loaded = Tokenizer.from_file(str(store.fetch(_TOKENIZER)))
    return lambda tokens: str(loaded.decode(tokens))
