"""CodeContests+: CodeContests' problems with tests of their own, in the configurations `1x` to `5x`, and a checker.

A problem that names a checker takes several answers; the checkers are C++ for testlib, and nothing here compiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raypoly.problems.formats.code_contests import pairs_of
from raypoly.problems.formats.python_source import first_program
from raypoly.problems.formats.row_fields import Identifier, SourceRow, Text, prompt_of, stdin_description
from raypoly.problems.formats.test_suites import stdin_suite
from raypoly.values import Problem

_PYTHON3 = ("py3", "python3", "PYTHON3", 3)
_RATES = ("true_positive_rate", "true_negative_rate")


class _Row(SourceRow):
    id: Identifier
    test_cases: Any = None
    checker: Text = ""
    description: Text = ""
    correct_submissions: Any = None
    true_positive_rate: float | None = None
    true_negative_rate: float | None = None


def recognises(row: Mapping[str, Any]) -> bool:
    return "correct_submissions" in row or ("test_cases" in row and "checker" in row)


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    if it.checker.strip():
        how = (
            "C++, which is not compiled here"
            if "#include" in it.checker
            else "a program with an unknown way to call it"
        )
        raise ValueError(f"checker: {how}, and without it right answers would be refused")
    if not it.test_cases:
        raise ValueError("test_cases: there are none; they are in the configurations 1x to 5x")
    rates = {name: getattr(it, name) for name in _RATES}
    return Problem(
        id=it.id,
        prompt=prompt_of(stdin_description(it.description)),
        entry_point="",
        tests=stdin_suite(pairs_of(it.test_cases, "test_cases")),
        solution=first_program(_in_python(it.correct_submissions)),
        reference_seconds=it.reference_seconds,
        metadata=it.about() | {name: f"{rate:g}" for name, rate in rates.items() if rate is not None},
    )


def _in_python(submissions: Any) -> Iterator[Any]:
    for submission in submissions if isinstance(submissions, list) else []:
        if isinstance(submission, Mapping) and submission.get("language") in _PYTHON3:
            yield submission.get("code")
