"""What `raypoly score` does with files: read, run, write rows, say how it went."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rich.console import Console

from raypoly import __version__, settings
from raypoly.config import ON_RESUME, ScorerConfig
from raypoly.errors import SandboxError, UsageError
from raypoly.offline.row_writer import STDOUT, RowWriter
from raypoly.offline.score.program_file import ProblemIndex, Survey, look_over, read_programs
from raypoly.offline.score.score_progress import shown, status_table
from raypoly.offline.score.validate_problems import FAILED, NO_SOLUTION, validated
from raypoly.offline.score.verdict_rows import Tally, verdict_row
from raypoly.problems.formats import ProblemStream, Rejected, files_of, read_problems, row_of
from raypoly.scoring.local_pool import LocalPool
from raypoly.scoring.score_programs import scored

NOTES = Console(stderr=True)
"""Progress and remarks: standard output may be taken by rows."""


def scorer_config(overrides: Sequence[str], workers: int | None) -> ScorerConfig:
    """The scorer's section with overrides laid over it; a worker for each CPU where nobody says how many.

    Raises `UsageError` for what is no key of the section, or no value of the key.
    """
    foreign = [text for text in overrides if not text.strip().startswith("scorer.")]
    if foreign:
        raise UsageError(
            f"{foreign[0]!r} is no key of the scorer: raypoly score takes those alone, such as scorer.memory_mib=512."
        )
    default = f"scorer.workers={len(os.sched_getaffinity(0))}"
    given = [] if workers is None else [f"scorer.workers={workers}"]
    return settings.load(None, [default, *overrides, *given]).scorer


def score_files(problems: Path, programs: Path, out: str, config: ScorerConfig, evidence: bool) -> None:
    """Write a row for each program, behind those that an interrupted start left; print a table at the end.

    Raises `UsageError` for bad input before anything starts, `SandboxError` at the end where programs have no verdict.
    """
    spare(out, problems, programs)
    file = read_problems(problems)
    note_rejected(problems, file.rejected)
    known = ProblemIndex(file, problems)
    survey = look_over(programs, known)
    with ExitStack() as stack:
        rows = stack.enter_context(RowWriter.resumable(out, identity(problems, survey, config, evidence)))
        tally = Tally()
        for row in rows.kept():
            tally.add(row)
        if tally.programs:
            NOTES.print(f"{tally.programs:,} programs have their verdicts already.", highlight=False)
        left = survey.programs - tally.programs
        pool = stack.enter_context(LocalPool(_for(config, left), evidence))
        begin = time.monotonic()
        with shown(left, lambda: (pool.done, pool.passed), NOTES):
            for program, verdict in scored(pool, known.problems, read_programs(programs, known, tally.programs)):
                row = verdict_row(program, verdict, evidence)
                rows.write(row)
                tally.add(row)
        seconds = time.monotonic() - begin
        rows.done()
    console = NOTES if out == STDOUT else Console()
    console.print(status_table(tally.statuses))
    if left:
        say(console, f"{left:,} in {seconds:.1f} s, {left / seconds:,.1f}/s; {pool.cpu_seconds:,.1f} s of CPU in them")
    if out != STDOUT:
        say(console, f"verdicts: {out}")
    tally.complain()


def validate_file(problems: Path, out: str | None, calibrated: str | None, config: ScorerConfig) -> None:
    """Run each problem's own solution, write the exclusion list and the usable problems, print a table.

    The problems stream: however large the file is, few are held. Raises `UsageError` for bad input, `SandboxError` at
    the end where the sandbox failed.
    """
    for written in filter(None, (out, calibrated)):
        spare(written, problems)
    stream = ProblemStream(problems)
    total, found_so_far = stream.rows(), iter(stream)
    first = list(islice(found_so_far, config.workers))
    calibrate = calibrated is not None
    statuses: Counter[str] = Counter()
    failed: list[tuple[str, str]] = []
    with ExitStack() as stack:
        excluded = stack.enter_context(RowWriter.opened(out)) if out is not None else None
        usable = stack.enter_context(RowWriter.opened(calibrated)) if calibrated is not None else None
        pool = stack.enter_context(LocalPool(_for(config, len(first)), calibrate=calibrate))
        with shown(total, lambda: (pool.done + len(stream.rejected), pool.passed), NOTES):
            for found in validated(pool, chain(first, found_so_far), calibrate):
                statuses[found.status] += 1
                if found.reason == FAILED:
                    failed.append((found.problem.id, found.detail))
                if found.excluded and excluded is not None:
                    excluded.write(found.row)
                if usable is not None and found.reason in ("", NO_SOLUTION):
                    usable.write(row_of(found.problem))
        for row in _rejected_rows(stream):
            statuses["rejected"] += 1
            if excluded is not None:
                excluded.write(row)
        for rows in filter(None, (excluded, usable)):
            rows.done()
    console = NOTES if STDOUT in (out, calibrated) else Console()
    console.print(status_table(statuses, first="its solution"))
    for name, path in (("exclusion list", out), ("calibrated problems", calibrated)):
        if path not in (None, STDOUT):
            say(console, f"{name}: {path}")
    if failed:
        raise SandboxError(
            f"The sandbox failed on the solutions of {len(failed)} problems, the first {failed[0][0]!r}"
            f" ({failed[0][1]}); they are not in the list: give the command again."
        )


def identity(problems: Path, survey: Survey, config: ScorerConfig, evidence: bool) -> dict[str, Any]:
    """What a start has in common with the one that it goes on for: all that verdicts depend on."""
    digests = []
    for path in files_of(problems):
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    free = {name for name, field in ScorerConfig.model_fields.items() if field.json_schema_extra == ON_RESUME}
    return {
        "version": __version__,
        "problems": "+".join(digests),
        "programs": survey.sha256,
        "scorer": config.model_dump(mode="json", exclude=free),
        "evidence": evidence,
    }


def note_rejected(path: Path, rejected: Sequence[Rejected]) -> None:
    """Name rows that can't be used."""
    if rejected:
        first = rejected[0]
        say(NOTES, f"Note: left out of {path}: {len(rejected)} rows, the first in line {first.line}: {first.reason}")


def spare(out: str, *inputs: Path) -> None:
    """Raises `UsageError` where what is written would take the place of what is read."""
    for file in (file for path in inputs for file in files_of(path)):
        if out != STDOUT and os.path.realpath(out) == os.path.realpath(file):
            raise UsageError(f"--out {out} is the file that is read: name another one.")


def _rejected_rows(stream: ProblemStream) -> Iterator[dict[str, Any]]:
    """Rows of the exclusion list. A second row of an id that is usable must not take the first one along."""
    for rejected in stream.rejected:
        name = None if rejected.id in stream.ids else rejected.id
        detail = f"line {rejected.line}: {rejected.reason}"
        yield {"problem_id": name, "reason": "its row can't be used", "status": "rejected", "detail": detail}


def _for(config: ScorerConfig, programs: int) -> ScorerConfig:
    """No more workers than there are programs."""
    return config.model_copy(update={"workers": max(1, min(config.workers, programs))})


def say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
