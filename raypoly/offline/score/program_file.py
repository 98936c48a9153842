"""Read a file of programs: rows `{"id", "problem_id", "code"}`, or `response` in place of `code`; plain or gzipped.

    survey = look_over(path, problems)        # every row is checked before anything runs
    for program in read_programs(path, problems): ...

`response` is a model's answer, from which `extract_code` takes the program. Other keys are ignored. Both read the file
row by row and never hold it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raypoly.errors import UsageError
from raypoly.problems.formats import ProblemFile, read_lines
from raypoly.scoring.code_extraction import extract_code
from raypoly.scoring.score_programs import Program
from raypoly.values import Problem


@dataclass(frozen=True)
class Survey:
    """What a file of programs holds."""

    programs: int
    sha256: str
    """Of its text, hex: packed or not does not matter."""


@dataclass(frozen=True)
class _Row:
    id: str | int
    problem: Problem
    text: str | None
    answers: bool
    """Whether the text is a model's answer, to take the program from."""

    def program(self) -> Program:
        text = self.text
        code = extract_code(self.problem, text) if self.answers and text is not None else text
        return Program(self.id, self.problem.id, code)


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
        rejected = self._rejected.get(problem_id)
        if rejected is not None:
            raise ValueError(
                f"its problem {problem_id!r} can't be used: {rejected.source} line {rejected.line}: {rejected.reason}"
            )
        raise ValueError(f"there is no problem {problem_id!r} in {self._path}")


def look_over(path: Path, known: ProblemIndex) -> Survey:
    """Check every row. Raises `UsageError` that names the first bad line, or says that there is no program."""
    digest, count = hashlib.sha256(), 0
    for number, line in _lines(path):
        _row(path, number, line, known)
        digest.update(line)
        count += 1
    if not count:
        raise UsageError(f"{path} has no program: write a row of id, problem_id, code for each.")
    return Survey(count, digest.hexdigest())


def read_programs(path: Path, known: ProblemIndex, skip: int = 0) -> Iterator[Program]:
    """The programs in order, without the first `skip`. Raises as `look_over` does."""
    for place, (number, line) in enumerate(_lines(path)):
        if place >= skip:
            yield _row(path, number, line, known).program()


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no plain file, and programs are read twice: write them to a file first.")
    return read_lines(path)


def _row(path: Path, number: int, line: bytes, known: ProblemIndex) -> _Row:
    try:
        if not line:
            raise ValueError("the row is too long")
        content: Any = json.loads(line)
        if not isinstance(content, dict):
            raise ValueError('the row is no object such as {"id": ..., "problem_id": ..., "code": ...}')
        return _checked(content, known)
    except RecursionError as error:
        raise UsageError(f"{path} line {number}: the row is nested too deeply.") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} line {number}: this is not JSON: {error}.") from error
    except ValueError as error:
        raise UsageError(f"{path} line {number}: {error}.") from error


def _checked(content: Mapping[str, Any], known: ProblemIndex) -> _Row:
    """The row's parts. Raises `ValueError` with the reason."""
    key = "code" if "code" in content else "response"
    for name in ("id", "problem_id", key):
        if name not in content:
            raise ValueError(f"the row has no {'code (or response)' if name == 'response' else name}")
    for name in ("id", "problem_id"):
        if type(content[name]) not in (str, int):
            raise ValueError(f"{name} is {_kind(content[name])}, not text or a whole number")
    if not isinstance(content[key], str | None):
        raise ValueError(f"{key} is {_kind(content[key])}, not text or null")
    return _Row(content["id"], known[str(content["problem_id"])], content[key], key == "response")


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), "text" if isinstance(value, str) else "null")
