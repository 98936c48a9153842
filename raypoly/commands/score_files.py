"""The work of `raypoly score` on files: score programs, run the problems' own solutions, find duplicate problems."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import chain, islice
from pathlib import Path
from typing import Any

from raypoly.commands.command_output import (
    NOTES,
    SHOWN,
    MissingVerdicts,
    note_rejected,
    results_console,
    say,
    say_where,
)
from raypoly.commands.row_writer import Row, open_rows, refuse_overwriting
from raypoly.commands.section_config import lasting_keys, open_pool
from raypoly.core.caches import file_sha256
from raypoly.core.config import ComparisonChoice, ScorerConfig
from raypoly.core.progress_display import show_progress
from raypoly.core.tables import ReportTable
from raypoly.core.values import STATUSES, Evidence, Verdict
from raypoly.data.formats import ProblemStream, files_of, read_problems, row_of
from raypoly.data.similar import DuplicatePair, find_duplicates, find_overlaps
from raypoly.verifier.local_pool import LocalPool
from raypoly.verifier.score_programs import (
    FAILED,
    NO_SOLUTION,
    GivenProgram,
    ProblemIndex,
    Survey,
    check_programs,
    limit_workers,
    read_programs,
    scored,
    validated,
    verdict_fields,
)


def score_files(
    problems: Path,
    programs: Path,
    out: str,
    config: ScorerConfig,
    workers: int | None,
    evidence: bool,
    comparison: ComparisonChoice,
) -> None:
    """Write a row for each program, after those of an interrupted start; print a table. `workers`: where it was asked.

    Raises `UsageError` for bad input before anything starts, `SandboxError` at the end where programs have no verdict.
    """
    refuse_overwriting(out, problems, programs)
    file = read_problems(problems).compared_by(comparison)
    note_rejected(problems, file.rejected)
    known = ProblemIndex(file, problems)
    survey = check_programs(programs, known)
    statuses: Counter[str] = Counter()
    missing, pace = MissingVerdicts("program"), ""
    with ExitStack() as stack:
        rows = stack.enter_context(open_rows(out, score_identity(problems, survey, config, evidence, comparison)))

        def score_rest(kept: int) -> Iterator[Row]:
            nonlocal pace
            if kept:
                say(NOTES, f"{kept:,} programs have their verdicts already.")
            if not (left := survey.programs - kept):
                return
            given = config.model_copy(update={"evidence": evidence})
            pool = stack.enter_context(closing(open_pool(given, workers, left)))
            stack.enter_context(show_progress("programs", left, lambda: (pool.done, pool.passed), NOTES))
            begin = time.monotonic()
            for program, verdict in scored(pool, known.problems, read_programs(programs, known, kept)):
                yield verdict_row(program, verdict, evidence)
            seconds = time.monotonic() - begin
            pace = f"{left:,} in {seconds:.1f} s, {left / seconds:,.1f}/s; {pool.cpu_seconds:,.1f} s of CPU in them"

        for row in rows.resume(score_rest):
            statuses[row["status"]] += 1
            if row["status"] == "infra":
                missing.add(row["problem_id"], row["detail"], repr(row["id"]))
        rows.finish()
    console = results_console(out)
    console.print(status_table(statuses))
    if pace:
        say(console, pace)
    say_where(console, "verdicts", out)
    missing.raise_if_any()


def validate_file(
    problems: Path, out: str | None, calibrated: str | None, config: ScorerConfig, comparison: ComparisonChoice
) -> None:
    """Run each problem's own solution, write the exclusion list and the usable problems, print a table.

    The problems stream: few are held. Raises `UsageError` for bad input, `SandboxError` at the end.
    """
    refuse_overwriting(out, problems)
    refuse_overwriting(calibrated, problems)
    stream = ProblemStream(problems)
    total, coming = stream.rows(), (problem.compared_by(comparison) for problem in stream)
    first = list(islice(coming, config.workers))
    calibrate = calibrated is not None
    statuses: Counter[str] = Counter()
    missing = MissingVerdicts("solution")
    with ExitStack() as stack:
        excluded = stack.enter_context(open_rows(out))
        usable = stack.enter_context(open_rows(calibrated))
        pool = stack.enter_context(LocalPool(limit_workers(config, len(first)), calibrate=calibrate))
        with show_progress("programs", total, lambda: (pool.done + len(stream.rejected), pool.passed), NOTES):
            for found in validated(pool, chain(first, coming), calibrate):
                statuses[found.status] += 1
                if found.reason == FAILED:
                    missing.add(found.problem.id, found.detail, repr(found.problem.id))
                if found.excluded:
                    excluded.write(found.row)
                if calibrate and found.reason in ("", NO_SOLUTION):
                    usable.write(row_of(found.problem))
        for rejected in stream.rejected:
            statuses["rejected"] += 1
            # a second row of an id that is usable must not exclude the first
            name = None if rejected.id in stream.ids else rejected.id
            row = {"problem_id": name, "reason": "its row can't be used", "status": "rejected"}
            excluded.write({**row, "detail": f"line {rejected.line}: {rejected.reason}"})
        excluded.finish()
        usable.finish()
    console = results_console(out, calibrated)
    console.print(status_table(statuses, first="its solution"))
    say_where(console, "exclusion list", out)
    say_where(console, "calibrated problems", calibrated)
    missing.raise_if_any()


def score_identity(
    problems: Path, survey: Survey, config: ScorerConfig, evidence: bool, comparison: ComparisonChoice = "format"
) -> dict[str, Any]:
    digests = "+".join(map(file_sha256, files_of(problems)))
    keys = {"scorer": lasting_keys(config), "evidence": evidence, "comparison": comparison}
    return {"problems": digests, "programs": survey.sha256, **keys}


def verdict_row(program: GivenProgram, verdict: Verdict, evidence: bool) -> dict[str, Any]:
    row = {"id": program.id, **verdict_fields(verdict), "problem_id": program.problem_id}
    if evidence:
        row["evidence"] = None if verdict.evidence is None else _evidence_row(verdict.evidence)
    return row


def _evidence_row(evidence: Evidence) -> dict[str, Any]:
    fields = {name: value for name, value in vars(evidence).items() if name != "strategy"}
    return {"approach": evidence.strategy or None, **fields}


def status_table(counts: Mapping[str, int], first: str = "status") -> ReportTable:
    """Counts by status, those of verdicts first, in their usual order."""
    order = sorted(counts, key=lambda name: (*STATUSES, name).index(name))
    head = (first, "programs" if first == "status" else "problems")
    return ReportTable(head, [(status, f"{counts[status]:,}") for status in order])


def compare_files(problems: Path, against: Path | None, out: str | None) -> None:
    """Pairs within a file, or of a file with problems that it must not have. Raises `UsageError` for bad input."""
    inputs = [problems] if against is None else [problems, against]
    refuse_overwriting(out, *inputs)
    ours, *theirs = (ProblemStream(path) for path in inputs)
    with open_rows(out) as rows:
        pairs = find_overlaps(ours, theirs[0]) if theirs else find_duplicates(ours)
        for path, stream in zip(inputs, (ours, *theirs), strict=True):
            note_rejected(path, stream.rejected)
        for pair in pairs:
            rows.write(row_of_pair(pair))
        rows.finish()
    console = results_console(out)
    if pairs:
        head = ("problem", "is the same as", "because of", "similarity")
        shown = [
            (it.dropped.id, it.kept.id, it.reason, "unknown" if it.similarity is None else f"{it.similarity:.2f}")
            for it in pairs[:SHOWN]
        ]
        console.print(ReportTable(head, shown, {3}))
    where = f"are in {against} as well" if against else "are there a second time"
    more = f" (the first {SHOWN} are shown)" if len(pairs) > SHOWN else ""
    say(console, f"{len(pairs):,} of {len(ours.ids):,} problems of {problems} {where}{more}")
    say_where(console, "exclusion list", out)


def row_of_pair(pair: DuplicatePair) -> dict[str, Any]:
    """A row of an exclusion list; `similarity` is null where a statement is missing."""
    return {
        "problem_id": pair.dropped.id,
        "reason": pair.reason,
        "same_as": pair.kept.id,
        "source": pair.kept.source,
        "similarity": None if pair.similarity is None else round(pair.similarity, 4),
    }
