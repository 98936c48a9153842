"""The formats, and which one a row has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from raypoly.problems.formats import (
    apps,
    bigcodebench,
    code_contests,
    code_contests_plus,
    codeforces,
    humaneval,
    leetcode,
    livecodebench,
    mbpp,
    raypoly_rows,
    test_lists,
)
from raypoly.problems.formats.row_fields import cut, reason, writable
from raypoly.values import Problem

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    """One shape of row."""

    name: str
    marks: Callable[[Row], bool]
    """Whether the columns are this format's."""
    read: Callable[[Row], Problem]
    """Raises `ValueError` for a row that can't be used."""


FORMATS = (
    Format("raypoly", raypoly_rows.marks, raypoly_rows.read),
    Format("LiveCodeBench", livecodebench.marks, livecodebench.read),
    Format("CodeContests", code_contests.marks, code_contests.read),
    Format("CodeContests+", code_contests_plus.marks, code_contests_plus.read),
    Format("Codeforces", codeforces.marks, codeforces.read),
    Format("MBPP", mbpp.marks, mbpp.read),
    Format("APPS and TACO", apps.marks, apps.read),
    Format("verifiable problems", test_lists.marks, test_lists.read),
    Format("BigCodeBench", bigcodebench.marks, bigcodebench.read),
    Format("HumanEval", humaneval.marks, humaneval.read),
    Format("LeetCodeDataset", leetcode.marks, leetcode.read),
)
"""In the order in which they are asked: the first that knows the columns reads the row."""


def problem_of(row: Row, source: str = "") -> Problem:
    """The problem of one row; `source` says where it comes from, for `Problem.source`.

    Raises `ValueError` with one sentence: which column, and what is wrong with it.
    """
    if not isinstance(row, Mapping):
        raise ValueError("not a JSON object")
    try:
        for format_ in FORMATS:
            if format_.marks(row):
                return _written(replace(format_.read(row), source=source))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(reason(error)) from None
    columns = cut(", ".join(map(str, row)), 120) or "none"
    raise ValueError(f"no known format has these columns: {columns} (docs/problem-formats.md lists the formats)")


def _written(problem: Problem) -> Problem:
    """The problem, as it is. Raises `ValueError` where a text of it can't be written as UTF-8."""
    for name in ("id", "prompt", "prelude", "prefix", "solution"):
        _encodable(name, getattr(problem, name))
    _encodable("tests", problem.tests.source)
    _encodable("checker", problem.tests.checker)
    for name, text in problem.metadata.items():
        _encodable(f"metadata.{name}", text)
    return problem


def _encodable(name: str, text: str) -> None:
    if not writable(text):
        raise ValueError(f"{name}: holds half of a surrogate pair, which is no text")
