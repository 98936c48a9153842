"""The formats, and which one a row has.

A format is one module here with two functions, and one line in `FORMATS`:

    recognises(row) -> bool         whether the columns are this format's
    to_problem(row) -> Problem      the row as a problem; raises `ValueError` for a row that can't be used
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from raypoly.problems.formats import (
    apps,
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
from raypoly.problems.formats.row_fields import error_reason, is_utf8, one_line
from raypoly.values import Problem

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    """One shape of row; the functions are those of its module."""

    name: str
    recognises: Callable[[Row], bool]
    to_problem: Callable[[Row], Problem]


def _refuse_bigcodebench(row: Row) -> NoReturn:
    raise ValueError(
        "test: BigCodeBench's unittest classes need some 140 libraries, files and ports that the sandbox does not"
        " have; run its own harness"
    )


FORMATS = (
    Format("raypoly", raypoly_rows.recognises, raypoly_rows.to_problem),
    Format("LiveCodeBench", livecodebench.recognises, livecodebench.to_problem),
    Format("CodeContests", code_contests.recognises, code_contests.to_problem),
    Format("CodeContests+", code_contests_plus.recognises, code_contests_plus.to_problem),
    Format("Codeforces", codeforces.recognises, codeforces.to_problem),
    Format("MBPP", mbpp.recognises, mbpp.to_problem),
    Format("APPS and TACO", apps.recognises, apps.to_problem),
    Format("verifiable problems", test_lists.recognises, test_lists.to_problem),
    Format("BigCodeBench", lambda row: "complete_prompt" in row or "instruct_prompt" in row, _refuse_bigcodebench),
    Format("HumanEval", humaneval.recognises, humaneval.to_problem),
    Format("LeetCodeDataset", leetcode.recognises, leetcode.to_problem),
)
"""In the order in which they are asked: the first that recognises a row reads it."""


def problem_of(row: Row, source: str = "") -> Problem:
    """The problem of one row; `source` says where it comes from, for `Problem.source`.

    Raises `ValueError` with one sentence: which column, and what is wrong with it.
    """
    if not isinstance(row, Mapping):
        raise ValueError("not a JSON object")
    try:
        for format_ in FORMATS:
            if format_.recognises(row):
                return _check_texts(replace(format_.to_problem(row), source=source))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(error_reason(error)) from None
    columns = one_line(", ".join(map(str, row)), 120) or "none"
    raise ValueError(f"no known format has these columns: {columns} (docs/problem-formats.md lists the formats)")


def _check_texts(problem: Problem) -> Problem:
    """The problem unchanged. Raises `ValueError` where one of its texts can't be written as UTF-8."""
    names = ("id", "prompt", "prelude", "prefix", "solution")
    texts = {name: getattr(problem, name) for name in names}
    texts |= {"tests": problem.tests.source, "checker": problem.tests.checker}
    texts |= {f"metadata.{name}": text for name, text in problem.metadata.items()}
    for name, text in texts.items():
        if not is_utf8(text):
            raise ValueError(f"{name}: holds half of a surrogate pair, which is no text")
    return problem
