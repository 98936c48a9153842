"""Files of problems, read problem by problem.

stream = ProblemStream(Path("taco/train-*.parquet"))
for problem in stream: ...              # none is held
stream.rejected                         # rows set aside so far, and why

read_problems(path).problems            # all at once, where they fit
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raypoly.errors import UsageError
from raypoly.problems.formats.registry import problem_of
from raypoly.problems.formats.row_fields import row_id
from raypoly.problems.formats.row_files import count_rows, files_of, rows_of
from raypoly.values import Problem


@dataclass(frozen=True)
class Rejected:
    """A row that can't be used, and why."""

    line: int
    """Its line, or its place in a Parquet file, from 1."""
    id: str | None
    """None where the row did not come so far."""
    reason: str
    source: str
    """The path of the file."""


@dataclass(frozen=True)
class ProblemFile:
    """What a file held."""

    problems: list[Problem]
    """In the file's order, each id once."""
    rejected: list[Rejected]


class ProblemStream:
    """The problems of a file, of a folder's files or of those that a pattern names, one by one, each id once.

    Whatever mixture of formats the rows have. To be iterated over once. Raises `UsageError` where there is no file;
    while it is iterated, where one can't be read; and at the end, where no row was usable.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files = files_of(path)
        self.rejected: list[Rejected] = []
        """Rows set aside so far."""
        self.ids: set[str] = set()
        """Of the problems so far."""

    def rows(self) -> int | None:
        """How many rows there are, good or bad; None where a file, such as a pipe, can be read once only."""
        return sum(map(count_rows, self.files)) if all(file.is_file() for file in self.files) else None

    def __iter__(self) -> Iterator[Problem]:
        for file in self.files:
            for number, row in rows_of(file):
                problem = self._problem(file, number, row)
                if problem is not None:
                    yield problem
        if not self.ids:
            first = self.rejected[0] if self.rejected else None
            why = f"line {first.line}: {first.reason}" if first else "it is empty"
            raise UsageError(f"{self._path} has no usable row: {why}")

    def _problem(self, file: Path, number: int, row: Any) -> Problem | None:
        try:
            if isinstance(row, ValueError):
                raise row
            problem = problem_of(row, str(file))
            if problem.id in self.ids:
                raise ValueError(f"{problem.id!r} appears a second time; ids have to differ")
        except ValueError as error:
            self.rejected.append(Rejected(number, row_id(row), str(error), str(file)))
            return None
        self.ids.add(problem.id)
        return problem


def read_problems(path: Path) -> ProblemFile:
    """All problems that a path names. Raises `UsageError` as `ProblemStream` does."""
    stream = ProblemStream(path)
    return ProblemFile(list(stream), stream.rejected)
