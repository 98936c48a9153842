"""raypoly's own rows say every part of a problem, and come back the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.values import Problem
from raypoly.data.formats import problem_of, read_problems, row_of
from raypoly.data.puzzles import load_puzzles
from tests.raypoly.data.format_rows import (
    APPS,
    CONTEST,
    HUMANEVAL,
    LCB,
    LEETCODE,
    MBPP,
    OWN,
    PLUS,
    Row,
    refusal,
)

OWN_TESTS = [
    {"kind": "check", "source": "def check(candidate):\n    assert candidate(1, 2) == 3\n"},
    {"kind": "calls", "cases": [{"args": [1, 2], "expected": 3}], "comparison": "json"},
    {"kind": "stdin", "cases": [{"input": "1 2", "output": "3"}]},
    {"kind": "stdin", "cases": [{"input": "1 2", "output": "3"}], "comparison": "tokens"},
    {"kind": "stdin", "cases": [{"input": "3", "output": "1 2"}], "checker": "print(1)"},
    {"kind": "operations", "cases": [{"operations": ["A", "put"], "args": [[1], [2]], "expected": [None, 3]}]},
]


@pytest.mark.parametrize("tests", OWN_TESTS, ids=range(len(OWN_TESTS)))
def test_own_rows_say_all_parts_and_come_back_the_same(tests: Row) -> None:
    row = {"id": "a", "prompt": "p", "entry_point": "f", "prelude": "import x", "prefix": "def f():", "solution": "s"}
    row |= {"answer": "completion", "reference_seconds": 0.5, "metadata": {"k": "v"}, "tests": tests}
    row |= {"public_tests": tests}
    problem = problem_of(row, "file")
    assert problem.public_tests == problem.tests
    assert problem.tests.comparison == tests.get("comparison", problem.tests.default_comparison)
    assert row_of(problem) == row
    assert problem_of(row_of(problem), "file") == problem


def test_a_row_with_an_answer_comes_back_the_same() -> None:
    row = {"id": "a", "prompt": "p", "reference_seconds": 0.5, "tests": {"kind": "answer", "answer": "[1, 2]"}}
    problem = problem_of(row, "file")
    assert (problem.tests.source, row_of(problem)) == ("[1, 2]", row)
    assert problem_of(row_of(problem), "file") == problem


@pytest.mark.parametrize("row", [LEETCODE, HUMANEVAL, MBPP, PLUS, LCB, APPS, CONTEST], ids=range(7))
def test_every_format_can_be_written_as_own_rows_and_carries_a_reference_time(row: Row) -> None:
    problem = problem_of(row | {"reference_seconds": 0.25}, "file")
    assert problem.reference_seconds == 0.25
    written = json.loads(json.dumps(row_of(problem)))
    assert problem_of(written, "file") == problem
    assert "reference_seconds" in refusal(row | {"reference_seconds": -1})


def test_the_rows_that_the_documentation_shows_are_read() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "problem-formats.md"
    rows_shown = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    kinds = [problem_of(json.loads(row)).tests.kind for row in rows_shown]
    assert kinds == ["calls", "check", "stdin", "operations", "answer"]


def test_puzzles_come_back_with_their_budgets() -> None:
    puzzles = load_puzzles(ProblemsConfig()).splits["test"][:20]
    assert [problem_of(row_of(puzzle), "puzzles") for puzzle in puzzles] == list(puzzles)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"entry": "f"}, "entry: Extra inputs"),
        ({"entry_point": ""}, "entry_point"),
        ({"entry_point": "f(1)"}, "name of a function"),
        ({"id": 7}, "id:"),
        ({"tests": {"kind": "calls", "cases": []}}, "cases"),
        ({"tests": {"kind": "guess", "cases": []}}, "kind"),
        ({"tests": {"kind": "calls", "cases": [{"args": 1, "expected": 1}]}}, "cases.0.args"),
        ({"tests": {"kind": "calls", "cases": [{"args": [], "expected": 1, "budget": {"time": 1}}]}}, "budget.time"),
        (
            {"tests": {"kind": "stdin", "cases": [{"input": "", "output": ""}], "comparison": "loose"}},
            "comparison: Input should be 'exact', 'lines', 'tokens' or 'tolerance'",
        ),
        ({"tests": {"kind": "stdin", "cases": [{"input": 1, "output": ""}]}}, "cases.0.input"),
        ({"tests": {"kind": "check", "source": "assert f() == 1"}}, "check(candidate)"),
        (
            {"tests": {"kind": "operations", "cases": [{"operations": ["A"], "args": [], "expected": [None]}]}},
            "different lengths",
        ),
        ({"prelude": "\ud800"}, "prelude"),
        ({"public_tests": {"kind": "none"}}, "public_tests"),
        ({"public_tests": {"kind": "stdin", "cases": [{"input": "", "output": ""}]}}, "public_tests: no program"),
        ({"public_tests": {"kind": "check", "source": "def check(f):\n    '\ud800'"}}, "public_tests: holds half"),
        ({"tests": {"kind": "answer", "answer": "3"}}, "entry_point: tests of kind answer run no program"),
        ({"tests": {"kind": "answer", "answer": ""}}, "answer"),
    ],
)
def test_own_rows_are_read_strictly(changes: Row, reason: str) -> None:
    assert reason in refusal(OWN | changes)


def test_names_that_other_rows_of_a_parquet_file_have_are_null_and_mean_nothing(tmp_path: Path) -> None:
    def calls(expected: int | None, **more: Any) -> Row:
        return {"kind": "calls", "cases": [{"args": [1, 2], "expected": expected}], **more}

    limited = {"args": [1, 2], "expected": 3, "kwargs": {"z": 1}, "budget": {"steps": 9}}
    rows: list[Row] = [
        {"id": "a", "prompt": "p", "entry_point": "f", "tests": calls(None)},
        {"id": "b", "entry_point": "f", "tests": calls(3, comparison="json"), "metadata": {"k": "v"}, "solution": "s"},
        {"id": "c", "entry_point": "f", "tests": {"kind": "calls", "cases": [limited]}, "metadata": {"l": "w"}},
        {"id": "d", "entry_point": "f", "tests": {"kind": "calls", "cases": [limited | {"budget": {"depth": 9}}]}},
        {"id": "e", "tests": OWN_TESTS[2], "public_tests": OWN_TESTS[3]},
    ]
    pq.write_table(pa.Table.from_struct_array(pa.array(rows)), tmp_path / "rows.parquet")
    read = read_problems(tmp_path / "rows.parquet")
    assert read.rejected == []

    def means(problem: Problem) -> Row:
        row = row_of(problem)
        for case in row["tests"]["cases"]:
            if case.get("budget", case) is None:
                del case["budget"]
        return row

    assert [means(problem) for problem in read.problems] == rows


def test_a_null_that_a_row_may_have_stays_in_its_tests() -> None:
    case = {"args": [None], "expected": None, "kwargs": {"x": None}, "budget": None}
    problem = problem_of(OWN | {"tests": {"kind": "calls", "cases": [case]}, "public_tests": None})
    assert json.loads(problem.tests.source) == [case]


def test_rows_of_no_known_format_are_refused_with_their_columns() -> None:
    assert "colour, size" in refusal({"colour": 1, "size": 2})
    assert "JSON object" in refusal([1])
    nested: Any = 1
    for _ in range(100_000):
        nested = [nested]
    assert "nested" in refusal(OWN | {"tests": {"kind": "calls", "cases": [{"args": nested, "expected": 1}]}})
