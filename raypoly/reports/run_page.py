"""`report.html`: one file that opens offline. All that a model, a judge or a user wrote is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from raypoly.reports.judge_tables import judge_rows
from raypoly.reports.objective_measures import HEAD, measure_rows
from raypoly.reports.rollout_samples import RolloutSample, samples
from raypoly.reports.run_figure import figure
from raypoly.reports.run_table import comparisons, first_and_last, number
from raypoly.reports.step_times import Rows, tail_words, time_rows, times_figure
from raypoly.settings import dump

if TYPE_CHECKING:
    from raypoly.run import Run

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; color: #1c2733; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.15em; margin-top: 2em; border-bottom: 1px solid #dde3e9; }
table { border-collapse: collapse; margin: .6em 0; } th, td { padding: .25em .8em; border-bottom: 1px solid #e6ebef; }
th { text-align: left; font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; } .quiet { color: #66727e; }
pre { background: #f5f7f9; padding: .6em .8em; font-size: 13px; margin: .3em 0; white-space: pre-wrap; }
.sample { border-left: 3px solid #c3ccd4; padding-left: .8em; margin: .8em 0; }
.passed { border-color: #1b9e77; } details summary { cursor: pointer; }
"""


def write_report(run: Run) -> str:
    """Write `report.html` and `figure.png` beside the run's files, from them; returns the page's path or URI.

    Raises `StorageError` where they can't be written.
    """
    from raypoly.run import FIGURE, REPORT

    png = figure(run)
    page = _page(f"raypoly: {run.name}", _body(run, png))
    run.store.put_mutable(FIGURE, png)
    run.store.put_mutable(REPORT, page.encode())
    return run.store.place(REPORT)


def fragment(run: Run) -> str:
    """Head, curves and table, without page and style: what a notebook shows for a `Run`."""
    return _head(run) + _image(figure(run)) + _results(run.summary)


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>{body}</body></html>\n"
    )


def _body(run: Run, png: bytes) -> str:
    summary = run.summary
    return "\n".join(
        [
            _head(run),
            _image(png),
            "<h2>Before and after</h2>",
            _results(summary),
            "<h2>Where the time went</h2>",
            _times(summary.get("stage_seconds", {}), run.rows),
            _judge(judge_rows(run)),
            _measures(measure_rows(run.rows)),
            _pauses(summary.get("pauses", [])),
            _set_aside(summary.get("set_aside", {})),
            _losses(summary.get("damaged", []), summary.get("missing_rollouts", [])),
            "<h2>Sample rollouts</h2>",
            _samples(samples(run)),
            "<h2>Config</h2>",
            f"<details><summary>every key as it was resolved</summary><pre>{escape(dump(run.config))}</pre></details>",
        ]
    )


def _head(run: Run) -> str:
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


def _image(png: bytes, shows: str = "pass@k and strategies over the steps") -> str:
    data = base64.b64encode(png).decode()
    return f'<img alt="{shows}" src="data:image/png;base64,{data}">'


def _results(summary: Mapping[str, Any]) -> str:
    before, after = first_and_last(summary)
    if before is None:
        return '<p class="quiet">Not evaluated on the test split yet.</p>'
    after_head = f"after (step {after['step']})" if after else "after"
    rows = [(row.name, number(row.before), number(row.after), row.change) for row in comparisons(summary)]
    samples_word = f"{before.get('samples', '?')} samples a problem, test split"
    return (
        table(("", f"before (step {before['step']})", after_head, "change"), rows)
        + f'<p class="quiet">{samples_word}</p>'
    )


def _times(stages: Mapping[str, float], rows: Rows) -> str:
    lines, png, tail = time_rows(stages, rows), times_figure(rows), tail_words(rows)
    if not lines:
        return '<p class="quiet">Not known yet.</p>'
    note = (
        "Stages run beside each other, so their times at work may add up to more than the total. A step waits for one "
        "thing at a time: for generation while it goes on, then for the learner, the judge, the scorers, the move of "
        "the weights; for none of them when idle." + (f" {tail}" if tail else "")
    )
    picture = _image(png, "what the steps waited for") if png else ""
    return picture + table(("stage", "seconds at work", "waited for", "share"), lines) + f'<p class="quiet">{note}</p>'


def _judge(rows: Sequence[tuple[str, str]]) -> str:
    return "<h2>Judge</h2>" + table(("", ""), rows) if rows else ""


def _measures(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    note = '<p class="quiet">Means over the groups of a step, and over steps.</p>'
    return "<h2>What the objective measured</h2>" + table(HEAD, rows) + note


def _pauses(pauses: Sequence[Mapping[str, Any]]) -> str:
    if not pauses:
        return ""
    rows = [(str(pause["since"]), _length(pause), str(pause["reason"])) for pause in pauses]
    return "<h2>Pauses</h2>" + table(("since", "seconds", "why"), rows, numbers={1})


def _set_aside(problems: Mapping[str, Mapping[str, Any]]) -> str:
    if not problems:
        return ""
    rows = [(name, str(entry["groups"]), str(entry["reason"])) for name, entry in problems.items()]
    said = "<p>Their tests could not be run: these groups had no reward and no gradient.</p>"
    return "<h2>Problems set aside</h2>" + said + table(("problem", "groups", "reason"), rows)


def _losses(damaged: Sequence[Mapping[str, Any]], missing: Sequence[str]) -> str:
    if not damaged and not missing:
        return ""
    rows = [(str(entry["key"]), str(entry["moved_to"]), str(entry["reason"])) for entry in damaged]
    gone = f"<p>The rollouts of steps {escape(', '.join(missing))} are lost.</p>" if missing else ""
    return "<h2>Damaged files, set aside</h2>" + table(("file", "now", "why"), rows, numbers=set()) + gone


def _length(pause: Mapping[str, Any]) -> str:
    """Seconds, or why nobody knows them."""
    if pause.get("seconds") is not None:
        return f"{pause['seconds']:,.1f}"
    again = pause.get("interrupted")
    return f"unknown: the run was killed in it, and started again {again}" if again else "has not ended"


def _samples(shown: Iterable[RolloutSample]) -> str:
    parts = []
    for sample in shown:
        kind = "sample passed" if sample.status == "passed" else "sample"
        parts.append(
            f'<div class="{kind}"><b>{escape(sample.status)}</b> &middot; {escape(sample.strategy)} &middot; '
            f'<span class="quiet">step {sample.step}, {escape(sample.problem_id)} {escape(sample.detail)}</span>'
            f'<pre><span class="quiet">{escape(sample.prompt)}</span>{escape(sample.text)}</pre></div>'
        )
    return "".join(parts) or '<p class="quiet">None kept yet.</p>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: set[int] | None = None) -> str:
    """An HTML table, escaped; columns in `numbers` (default: all but the first) are aligned right."""
    right = set(range(1, len(head))) if numbers is None else numbers

    def cells(tag: str, values: Sequence[str]) -> str:
        marked = (f'<{tag} class="n">' if i in right else f"<{tag}>" for i in range(len(values)))
        return "".join(f"{opening}{escape(value)}</{tag}>" for opening, value in zip(marked, values, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"
