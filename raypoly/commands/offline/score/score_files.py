"""The work of `raypoly score` on files: score programs, run the problems' own solutions, find duplicate problems."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from raypoly.commands.offline.command_config import lasting_keys, limit_workers
from raypoly.commands.offline.command_output import (
    NOTES,
    SHOWN,
    note_rejected,
    raise_failures,
    results_console,
    say,
    say_where,
)
from raypoly.commands.offline.command_progress import show_progress
from raypoly.commands.offline.row_writer import Row, open_rows, refuse_overwriting
from raypoly.commands.offline.score.program_file import ProblemIndex, Survey, check_programs, read_programs
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import SandboxError
from raypoly.core.tables import ReportTable
from raypoly.core.values import STATUSES, Verdict
from raypoly.data.formats import ProblemStream, files_of, read_problems, row_of
from raypoly.data.similar import DuplicatePair, find_duplicates, find_overlaps
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.local_pool import BROKEN, LocalPool
from raypoly.verifier.score_programs import FAILED, NO_SOLUTION, GivenProgram, scored, validated


@dataclass
class VerdictTally:
    """The rows of verdicts, counted."""

    statuses: Counter[str] = field(default_factory=Counter)
    first_failed: Row | None = None
    """The first row that is the sandbox's fault."""
    failed: int = 0
    broken: set[str] = field(default_factory=set)
    """Problems whose tests can't be run."""

    @property
    def programs(self) -> int:
        return self.statuses.total()

    def add(self, row: Row) -> None:
        self.statuses[row["status"]] += 1
        if row["status"] == "infra" and row["detail"].startswith(BROKEN):
            self.broken.add(row["problem_id"])
        elif row["status"] == "infra":
            self.failed += 1
            self.first_failed = self.first_failed or row

    def raise_failures(self) -> None:
        """Raise `SandboxError` where programs have no verdict."""
        row = self.first_failed or {"id": "", "detail": ""}
        raise_failures(sorted(self.broken), self.failed, "program", f"the first {row['id']!r}", row["detail"])


def score_files(problems: Path, programs: Path, out: str, config: ScorerConfig, evidence: bool) -> None:
    """Write a row for each program, behind those that an interrupted start left; print a table at the end.

    Raises `UsageError` for bad input before anything starts, `SandboxError` at the end where programs have no verdict.
    """
    refuse_overwriting(out, problems, programs)
    file = read_problems(problems)
    note_rejected(problems, file.rejected)
    known = ProblemIndex(file, problems)
    survey = check_programs(programs, known)
    with ExitStack() as stack:
        rows = stack.enter_context(open_rows(out, score_identity(problems, survey, config, evidence)))
        tally = VerdictTally()
        for row in rows.read_kept():
            tally.add(row)
        if tally.programs:
            say(NOTES, f"{tally.programs:,} programs have their verdicts already.")
        left = survey.programs - tally.programs
        pool = stack.enter_context(LocalPool(limit_workers(config, left), StrategyEvidence() if evidence else None))
        begin = time.monotonic()
        with show_progress("programs", left, lambda: (pool.done, pool.passed), NOTES):
            for program, verdict in scored(pool, known.problems, read_programs(programs, known, tally.programs)):
                row = verdict_row(program, verdict, evidence)
                rows.write(row)
                tally.add(row)
        seconds = time.monotonic() - begin
        rows.finish()
    console = results_console(out)
    console.print(status_table(tally.statuses))
    if left:
        say(console, f"{left:,} in {seconds:.1f} s, {left / seconds:,.1f}/s; {pool.cpu_seconds:,.1f} s of CPU in them")
    say_where(console, "verdicts", out)
    tally.raise_failures()


def validate_file(problems: Path, out: str | None, calibrated: str | None, config: ScorerConfig) -> None:
    """Run each problem's own solution, write the exclusion list and the usable problems, print a table.

    The problems stream: however large the file is, few are held. Raises `UsageError` for bad input, `SandboxError` at
    the end where the sandbox failed.
    """
    refuse_overwriting(out, problems)
    refuse_overwriting(calibrated, problems)
    stream = ProblemStream(problems)
    total, coming = stream.rows(), iter(stream)
    first = list(islice(coming, config.workers))
    calibrate = calibrated is not None
    statuses: Counter[str] = Counter()
    failed: list[tuple[str, str]] = []
    with ExitStack() as stack:
        excluded = stack.enter_context(open_rows(out))
        usable = stack.enter_context(open_rows(calibrated))
        pool = stack.enter_context(LocalPool(limit_workers(config, len(first)), calibrate=calibrate))
        with show_progress("programs", total, lambda: (pool.done + len(stream.rejected), pool.passed), NOTES):
            for found in validated(pool, chain(first, coming), calibrate):
                statuses[found.status] += 1
                if found.reason == FAILED:
                    failed.append((found.problem.id, found.detail))
                if found.excluded:
                    excluded.write(found.row)
                if calibrate and found.reason in ("", NO_SOLUTION):
                    usable.write(row_of(found.problem))
        for rejected in stream.rejected:
            statuses["rejected"] += 1
            # a second row of an id that is usable must not exclude the first
            name = None if rejected.id in stream.ids else rejected.id
            detail = f"line {rejected.line}: {rejected.reason}"
            excluded.write(
                {"problem_id": name, "reason": "its row can't be used", "status": "rejected", "detail": detail}
            )
        excluded.finish()
        usable.finish()
    console = results_console(out, calibrated)
    console.print(status_table(statuses, first="its solution"))
    say_where(console, "exclusion list", out)
    say_where(console, "calibrated problems", calibrated)
    if failed:
        raise SandboxError(
            f"The sandbox failed on the solutions of {len(failed)} problems, the first {failed[0][0]!r}"
            f" ({failed[0][1]}); they are not in the list: give the command again."
        )


def score_identity(problems: Path, survey: Survey, config: ScorerConfig, evidence: bool) -> dict[str, Any]:
    """All that verdicts depend on."""
    digests = []
    for path in files_of(problems):
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return {
        "problems": "+".join(digests),
        "programs": survey.sha256,
        "scorer": lasting_keys(config),
        "evidence": evidence,
    }


def verdict_row(program: GivenProgram, verdict: Verdict, evidence: bool) -> dict[str, Any]:
    """A program's row in the file of verdicts."""
    row = {
        "id": program.id,
        "status": verdict.status,
        "passed": verdict.passed,
        "tests_passed": verdict.tests_passed,
        "tests_total": verdict.tests_total,
        "cpu_seconds": round(verdict.cpu_seconds, 6),
        "detail": verdict.detail,
        "failure": None if verdict.failure is None else asdict(verdict.failure),
        "problem_id": program.problem_id,
    }
    if evidence:
        row["evidence"] = None if verdict.evidence is None else {**vars(verdict.evidence)}
    return row


def status_table(counts: Mapping[str, int], first: str = "status") -> ReportTable:
    """The number of each status: those of verdicts in their usual order, others behind them."""
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
    """A row of an exclusion list, which `problems.exclude` reads; `similarity` is null where a statement is missing."""
    return {
        "problem_id": pair.dropped.id,
        "reason": pair.reason,
        "same_as": pair.kept.id,
        "source": pair.kept.source,
        "similarity": None if pair.similarity is None else round(pair.similarity, 4),
    }
