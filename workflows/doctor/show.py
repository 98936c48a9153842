"""Prints the doctor's report for a person, or as JSON for a script."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from raypoly.core.tables import ReportTable
from workflows.doctor.examination import examine
from workflows.doctor.findings import BAD, DoctorReport, Finding, State
from workflows.doctor.live_run import look_at_run

_QUIET: tuple[State, ...] = ("sound", "unchecked", "gone", "set aside")
_NAMED_AT_MOST = 50


def print_report(place: str, as_json: bool) -> bool:
    """Examine a run, print the report, and return whether it is sound. Progress goes to stderr if it is a terminal."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("objects", total=None)
        report = examine(place, lambda done, total: progress.update(task, completed=done, total=total))
    live = None if report.lease is None or report.lease.lives is False else look_at_run(report.name, report.lease)
    if as_json:
        print(json.dumps({**_values(report), "live": asdict(live) if live else None}, indent=2))
    else:
        _print(report, Console())
        for text in live.sentences if live else ():
            print(text)
    return not report.damaged


def _values(report: DoctorReport) -> dict[str, object]:
    """The report as JSON values: counts of all objects, and each object that is not sound."""
    counts: dict[str, Counter[str]] = {}
    lease = report.lease
    for finding in report.findings:
        counts.setdefault(finding.area, Counter())[finding.state] += 1
    return {
        "run": report.uri,
        "state": "damaged" if report.damaged else "sound",
        "lease": {"epoch": lease.epoch, "lives": lease.lives, "told": lease.summary} if lease else None,
        "objects": {area: dict(states) for area, states in counts.items()},
        "problems": [asdict(finding) for finding in report.findings if finding.state not in ("sound", "unchecked")],
        "free_bytes": report.free_bytes,
        "resume": asdict(report.resume),
    }


def _print(report: DoctorReport, console: Console) -> None:
    console.print(report.uri, highlight=False, soft_wrap=True)
    console.print(_table(report))
    problems = [finding for finding in report.findings if finding.state not in _QUIET]
    for finding in sorted(problems, key=lambda finding: finding.state not in BAD)[:_NAMED_AT_MOST]:
        style = "red" if finding.state in BAD else "yellow"
        line = Text.assemble((f"{finding.state:<13}", style), f"{finding.key}: {finding.reason}")
        console.print(line, highlight=False, soft_wrap=True)
    if len(problems) > _NAMED_AT_MOST:
        console.print(f"... and {len(problems) - _NAMED_AT_MOST} more: --json names them all")
    for text in _sentences(report):
        console.print(text, highlight=False, soft_wrap=True)


def _table(report: DoctorReport) -> ReportTable:
    rows = []
    areas: dict[str, list[Finding]] = {}
    for finding in report.findings:
        areas.setdefault(finding.area, []).append(finding)
    for area, findings in sorted(areas.items()):
        states = Counter(finding.state for finding in findings)
        size = sum(finding.bytes for finding in findings) / 2**20
        words = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        rows.append((area, f"{len(findings):,}", f"{size:,.1f}" if size else "", words))
    return ReportTable(("part", "objects", "MiB", "state"), rows, ())


def _sentences(report: DoctorReport) -> Iterator[str]:
    resume, lease = report.resume, report.lease
    yield f"lease: {f'epoch {lease.epoch}, {lease.summary}' if lease else 'none that can be read'}"
    yield f"free space: {report.free_bytes / 2**30:,.1f} GiB"
    if resume.refused:
        yield f"It would not go on: {resume.refused}."
        yield "Bring the file back (from a backup, or another copy), or start anew with run.fresh=true."
        return
    start = "the starting model" if resume.checkpoint is None else f"the checkpoint of step {resume.checkpoint}"
    if resume.finished:
        yield f"Finished after {resume.step} steps: the same command prints its results."
    else:
        groups = sum(resume.groups.values())
        stages = ", ".join(f"{count} {stage}" for stage, count in resume.groups.items() if count)
        kept = f"{groups} of its {resume.of} groups kept ({stages})" if groups else "nothing of it is committed yet"
        yield (
            f"It would go on at step {resume.step} (steps count from 0): {start}, "
            f"{resume.replayed} steps replayed, {kept}."
        )
    if lease is not None and lease.lives:
        yield "A driver is at work in it now."
    yield f"Command: the one that started it, or {resume.command}"
