"""Files of programs: rows `{"id", "problem_id", "code"}`, or `response` in place of `code`; plain or gzipped.

    survey = check_programs(path, problems)        # checks every row before anything runs
    for program in read_programs(path, problems): ...

A `response` is a model's answer, from which `extract_code` takes the program. Other keys are ignored. The file is read
row by row and never held.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data.formats import ProblemFile
from raypoly.data.formats.row_reader import FileRow, read_rows
from raypoly.verifier.code_extraction import extract_code
from raypoly.verifier.score_programs import GivenProgram

_KINDS = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object", str: "text"}


@dataclass(frozen=True)
class Survey:
    """Size and content hash of a file of programs."""

    programs: int
    sha256: str
    """Of its text, hex; the same whether the file is gzipped or not."""


class ProblemIndex:
    """The problems that programs may be for, by id."""

    def __init__(self, file: ProblemFile, path: Path) -> None:
        self.problems: Mapping[str, Problem] = {problem.id: problem for problem in file.problems}
        self._rejected = {rejected.id: rejected for rejected in file.rejected if rejected.id is not None}
        self._path = path

    def __getitem__(self, problem_id: str) -> Problem:
        """Raises `ValueError` that says why there is no such problem."""
        if problem_id in self.problems:
            return self.problems[problem_id]
        if (rejected := self._rejected.get(problem_id)) is None:
            raise ValueError(f"there is no problem {problem_id!r} in {self._path}")
        place = f"{rejected.source} line {rejected.line}"
        raise ValueError(f"its problem {problem_id!r} can't be used: {place}: {rejected.reason}")


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
            content, problem = _check(row, known)
            text = content["code"] if "code" in content else content["response"]
            if "code" not in content and text is not None:
                text = extract_code(problem, text)
            yield GivenProgram(content["id"], problem.id, text)


def _rows(path: Path) -> Iterator[FileRow]:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no plain file, and programs are read twice: write them to a file first.")
    return read_rows(path)


def _check(row: FileRow, known: ProblemIndex) -> tuple[Mapping[str, Any], Problem]:
    """The row and its problem. Raises `UsageError`."""
    content = row.parse()
    if not isinstance(content, dict):
        raise row.error('the row is no object such as {"id": ..., "problem_id": ..., "code": ...}')
    key = "code" if "code" in content else "response"
    for name in ("id", "problem_id", key):
        if name not in content:
            raise row.error(f"the row has no {'code (or response)' if name == 'response' else name}")
    for name in ("id", "problem_id"):
        if type(content[name]) not in (str, int):
            raise row.error(f"{name} is {_KINDS.get(type(content[name]), 'null')}, not text or a whole number")
    if not isinstance(content[key], str | None):
        raise row.error(f"{key} is {_KINDS.get(type(content[key]), 'null')}, not text or null")
    try:
        return content, known[str(content["problem_id"])]
    except ValueError as error:
        raise row.error(str(error)) from None
