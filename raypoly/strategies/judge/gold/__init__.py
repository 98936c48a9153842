"""Gold groups: programs whose strategies people have labelled, to measure a judge by.

    for group in read_gold_groups():              # the shipped set; read_gold_groups(Path("mine.jsonl")) for another
        group.programs, group.labels             # N texts and N ids, 0 = degenerate
        group.as_problem()                       # what the sandbox needs to run them

A file is JSON lines, plain or gzipped. A row needs `id`, `problem`, `programs` and `labels`. docs/gold-set.md has the
rules of labelling and the optional columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import leetcode
from raypoly.data.formats.python_source import prelude_without
from raypoly.data.formats.row_files import FileRow, read_rows_by_id

PRELUDE = f"{leetcode.PRELUDE}\nfrom builtins import *\nimport sys\n"
"""Runs before a gold program, as on LeetCode. `builtins` is the last star, so that `pow` takes three arguments."""

_SHIPPED = Path(__file__).with_name("gold.jsonl")
_NO_TESTS = "def check(candidate):\n    pass\n"


@dataclass(frozen=True)
class GoldGroup:
    """One problem with N labelled programs."""

    id: str
    problem: str
    programs: tuple[str, ...]
    labels: tuple[int, ...]
    """A strategy id >= 1 of each program, 0 where degenerate; they mean nothing across groups."""
    task_id: str = ""
    entry_point: str = ""
    """What the tests call; empty where unknown."""
    strategies: Mapping[int, str] = field(default_factory=dict)
    notes: Mapping[int, str] = field(default_factory=dict)
    """What is special about a program, by its place from 0: `bug: ...`, `decoy: ...`, `renamed` ..."""
    certainty: str = ""
    """`high`, or `medium` where another careful reader might draw a line elsewhere."""
    reasons: str = ""
    passes: tuple[bool, ...] | None = None
    """Whether each program passes the tests; None where nobody has said so."""
    tests: str = ""
    """Python that defines `check(candidate)`, or empty."""

    def as_problem(self) -> Problem:
        return group_problem(self.id, self.problem, self.entry_point, self.tests)


def group_problem(name: str, statement: str, entry_point: str, tests: str, prelude: str = PRELUDE) -> Problem:
    """The problem of a group's row. Without `tests`, all programs that load pass."""
    suite = TestSuite("check", tests or _NO_TESTS)
    prelude = prelude_without(prelude, entry_point)
    return Problem(id=name, prompt=statement, entry_point=entry_point, tests=suite, prelude=prelude)


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)
    id: str = Field(min_length=1)
    problem: str
    programs: list[str] = Field(min_length=2)
    labels: list[int]
    task_id: str = ""
    entry_point: str = ""
    strategies: dict[str, str] = {}
    notes: dict[str, str] = {}
    certainty: str = ""
    reasons: str = ""
    passes: list[bool] | None = None
    tests: str = ""

    @model_validator(mode="after")
    def _fits_together(self) -> _Row:
        count = len(self.programs)
        if len(self.labels) != count:
            raise ValueError(f"{len(self.labels)} labels for {count} programs")
        if min(self.labels) < 0:
            raise ValueError("labels are strategy ids from 1, and 0 for degenerate")
        if self.passes is not None and len(self.passes) != count:
            raise ValueError(f"{len(self.passes)} passes for {count} programs")
        if not all(key.isdecimal() and int(key) < count for key in self.notes):
            raise ValueError(f"notes are by the place of a program, from 0 to {count - 1}")
        if not all(key.isdecimal() for key in self.strategies):
            raise ValueError("strategies are by their ids")
        unnamed = set(self.labels) - {0, *map(int, self.strategies)}
        if self.strategies and unnamed:
            raise ValueError(f"no strategy is given for label {min(unnamed)}")
        return self


def read_gold_groups(path: Path | None = None) -> list[GoldGroup]:
    """All groups of a file, by default the shipped one, in order.

    Raises `UsageError`, with file and line, where a row is no gold group, and where the file has none or can't be read.
    """
    what = "gold group; docs/gold-set.md says what a row looks like"
    return read_rows_by_id(_SHIPPED if path is None else path, _read_group, what)


def _read_group(source: FileRow) -> GoldGroup:
    row = source.parse_as(_Row)
    own = {
        "programs": tuple(row.programs),
        "labels": tuple(row.labels),
        "strategies": {int(key): text for key, text in row.strategies.items()},
        "notes": {int(key): text for key, text in row.notes.items()},
        "passes": None if row.passes is None else tuple(row.passes),
    }
    return GoldGroup(**row.model_dump() | own)
