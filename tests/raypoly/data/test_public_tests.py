"""Public tests may be shown and hidden ones decide: no test is both, and nothing that was read before changes by it."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from typing import Any

import pytest

from raypoly.core.config import ProblemsConfig, ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.data import build_problem_set
from raypoly.data.formats import problem_of, read_problems, row_of
from raypoly.data.problem_set import content_hash
from raypoly.data.public_tests import set_apart
from raypoly.verifier import LocalPool
from tests.raypoly.data.format_rows import HUMANEVAL, LCB, PLUS
from tests.raypoly.data.source_rows import SAMPLES
from tests.support.small_problems import SHARED

ROWS = {sample.name: sample.row for sample in SAMPLES}
LEETCODE = SHARED / "data" / "leetcode"


def named(name: str) -> Problem:
    return problem_of(ROWS[name])


def cases(suite: TestSuite | None) -> list[Any]:
    found: list[Any] = [] if suite is None else json.loads(suite.source)
    return found


def problem(kind: Any, source: object, public: object = None, **suite: Any) -> Problem:
    text, shown = (it if isinstance(it, str) else json.dumps(it) for it in (source, public))
    tests = TestSuite(kind, text, **suite)
    return Problem("p", "", "f", tests, public_tests=None if public is None else replace(tests, source=shown))


@pytest.mark.parametrize(
    ("name", "public", "tests"),
    [
        ("LiveCodeBench functional", ["[0, 1]"], 2),
        ("LiveCodeBench stdin", ["3\n"], 2),
        ("CodeContests", ["3\n"], 3),
        ("open-r1/codeforces", ["3\n"], 2),
    ],
)
def test_rows_that_name_public_tests_give_them_and_all_tests_decide_as_before(
    name: str, public: list[str], tests: int
) -> None:
    found = named(name)
    assert found.public_tests is not None
    assert [case.get("output", json.dumps(case.get("expected"))) for case in cases(found.public_tests)] == public
    assert len(cases(found.tests)) == tests
    assert problem_of(json.loads(json.dumps(row_of(found)))) == found


def test_a_codeforces_example_is_public_as_far_as_it_is_among_the_first_official_tests() -> None:
    row = ROWS["open-r1/codeforces"]
    shown = {"input": "4 5\n", "output": "9"}
    assert problem_of(row | {"examples": [shown]}).public_tests is None
    assert problem_of(row | {"examples": None}).public_tests is None
    assert len(cases(problem_of(row | {"examples": [*row["examples"], shown]}).public_tests)) == 2
    checked = named("open-r1/codeforces with a checker")
    (test, _) = cases(checked.tests)
    again = problem_of(ROWS["open-r1/codeforces with a checker"] | {"examples": [test]})
    assert again.public_tests is not None
    assert again.public_tests.checker == checked.tests.checker


def test_all_other_rows_name_none() -> None:
    public = {name for name, row in ROWS.items() if problem_of(row).public_tests is not None}
    assert public - {"CodeContests", "open-r1/codeforces"} == {name for name in ROWS if "LiveCodeBench" in name}


def test_a_set_that_could_be_read_before_keeps_its_hash_and_public_tests_of_ones_own_are_part_of_it() -> None:
    for found in map(problem_of, ROWS.values()):
        assert content_hash({"train": [found]}) == content_hash({"train": [replace(found, public_tests=None)]})
    one = {"args": [1], "expected": 2}
    hashes = {
        content_hash({"train": [problem("calls", [one, {"args": [2], "expected": 3}], public)]})
        for public in (None, [{"args": [5], "expected": 6}], [{"args": [7], "expected": 8}])
    }
    assert len(hashes) == 3


def test_public_tests_are_taken_from_the_hidden_ones() -> None:
    for name in ("LiveCodeBench functional", "LiveCodeBench stdin", "CodeContests", "open-r1/codeforces"):
        whole, apart = named(name), set_apart(named(name), 2)
        assert apart.public_tests == whole.public_tests
        assert cases(apart.public_tests) + cases(apart.tests) == cases(whole.tests)
        assert set_apart(apart, 5) == apart


def test_where_all_tests_are_public_they_decide_as_well() -> None:
    found = problem_of(LCB)
    assert found.public_tests == found.tests
    assert set_apart(found, 1) == found


def test_a_task_without_public_tests_gets_its_first_ones_and_one_at_least_stays_hidden() -> None:
    task = build_problem_set(ProblemsConfig(source="tasks")).splits["train"][0]
    for n, public in ((-3, 0), (0, 0), (1, 1), (3, 3), (17, 17), (18, 17), (99, 17)):
        apart = set_apart(task, n)
        assert cases(apart.public_tests) == cases(task.tests)[:public]
        assert cases(apart.tests) == cases(task.tests)[public:]
        assert (apart.public_tests is None) == (public == 0)
        assert replace(apart, tests=task.tests, public_tests=None) == task


def test_a_puzzles_tests_take_their_budgets_along() -> None:
    budgets = 0
    for puzzle in build_problem_set(ProblemsConfig()).splits["test"][:50]:
        apart = set_apart(puzzle, 2)
        assert apart.public_tests is not None
        for suite in (apart.public_tests, apart.tests):
            assert (suite.kind, suite.comparison) == (puzzle.tests.kind, puzzle.tests.comparison)
            assert all(case in cases(puzzle.tests) for case in cases(suite))
            budgets += sum("budget" in case for case in cases(suite))
    assert budgets


def test_copies_of_a_shown_test_are_not_hidden() -> None:
    one, two = {"input": "1", "output": "1"}, {"input": "2", "output": "2"}
    apart = set_apart(problem("stdin", [one, two, one]), 1)
    assert (cases(apart.public_tests), cases(apart.tests)) == ([one], [two])
    apart = set_apart(problem("stdin", [one, two, dict(reversed(one.items()))], [one]), 1)
    assert cases(apart.tests) == [two]
    for same in ([one], [one, one, one]):
        assert set_apart(problem("stdin", same), 2).public_tests is None
    apart = set_apart(problem("stdin", [one, two, two]), 2)
    assert (cases(apart.public_tests), cases(apart.tests)) == ([one], [two, two]), "the second alone is hidden"
    with_budget = {"args": [1], "expected": 2, "budget": {"steps": 3}}
    assert len(cases(set_apart(problem("calls", [with_budget, {"args": [1], "expected": 2}]), 1).tests)) == 1


def test_operations_and_large_numbers_are_set_apart_as_they_are() -> None:
    runs = [{"operations": ["A", "get"], "args": [[n], []], "expected": [None, n]} for n in range(3)]
    apart = set_apart(problem("operations", runs, comparison="json"), 1)
    assert (cases(apart.public_tests), cases(apart.tests), apart.tests.comparison) == (runs[:1], runs[1:], "json")
    source = f'[{{"args": [1], "expected": {"9" * 5000}}}, {{"args": [2], "expected": NaN}}]'
    apart = set_apart(problem("calls", source), 1)
    assert apart.public_tests is not None
    assert f"[{apart.public_tests.source[1:-1]}, {apart.tests.source[1:-1]}]" == source


CHECK = """\
import math

LIMIT = 9


def near(a, b):
    assert b is not None
    return math.isclose(a, b)


def check(candidate):
    '''Checks.'''
    nine = LIMIT
    assert candidate(1) == 2, "one"
    assert near(
        candidate(2),
        3,
    )
    eight = nine - 1
    assert candidate(eight) == nine; assert candidate("a; assert b") is None
"""


def assertions(suite: TestSuite | None) -> list[str]:
    if suite is None:
        return []
    (check,) = [part for part in ast.parse(suite.source).body if getattr(part, "name", "") == "check"]
    return [ast.unparse(part) for part in check.body if isinstance(part, ast.Assert)]  # type: ignore[attr-defined]


def test_a_check_is_set_apart_by_its_assertions_and_all_else_is_in_both() -> None:
    whole = problem("check", CHECK)
    apart = set_apart(whole, 2)
    assert assertions(apart.public_tests) == ["assert candidate(1) == 2, 'one'", "assert near(candidate(2), 3)"]
    assert assertions(apart.tests) == ["assert candidate(eight) == nine", "assert candidate('a; assert b') is None"]
    for suite in (apart.public_tests, apart.tests):
        assert suite is not None
        for part in ("import math", "LIMIT = 9", "def near", "nine = LIMIT", "eight = nine - 1", "Checks."):
            assert part in suite.source
    assert len(assertions(set_apart(whole, 99).tests)) == 1
    shown = replace(whole, public_tests=TestSuite("check", "def check(f):\n    assert candidate(1) == 2, 'one'\n"))
    assert assertions(set_apart(shown, 1).tests) == assertions(whole.tests)[1:]
    assert set_apart(problem_of(HUMANEVAL), 1).public_tests is not None


@pytest.mark.parametrize(
    "source",
    [
        PLUS["test"],
        "def check(candidate):\n    for n in range(9):\n        assert candidate(n) == n\n",
        "def check(candidate):\n    assert candidate(1) == 1\n    for n in (2, 3):\n        assert candidate(n) == n\n",
        "def check(candidate):\n    got = candidate(1)\n    assert got == 1\n    assert candidate(2) == 2\n",
        "def check(candidate):\n    run_all(candidate)\n    assert candidate(2) == 2\n    assert candidate(3) == 3\n",
        "def check(*all):\n    run(all)\n    assert all[0](2) == 2\n    assert all[0](3) == 3\n",
        "def check(candidate):\n    assert candidate(1) == 1\n",
        "def check(candidate):\n    pass\n",
        "async def check(candidate):\n    assert candidate(1)\n    assert candidate(2)\n",
        "check = lambda candidate: None\n",
        "def check(candidate): assert (((",
        "def check(candidate):\n    assert candidate(1) == " + "[" * 150 + "]" * 150 + "\n    assert 1" + " + 1" * 5000,
        "\0",
        "",
    ],
)
def test_a_check_that_might_show_a_hidden_test_or_is_broken_is_left_whole(source: str) -> None:
    whole = problem("check", source)
    assert set_apart(whole, 1) == whole


@pytest.mark.parametrize("source", ["", "no JSON", "{}", "7", "[]", "[1]", "[" * 100_000, "null", '"two"'])
@pytest.mark.parametrize("kind", ["calls", "stdin", "operations", "none"])
def test_tests_that_are_no_list_are_left_to_who_runs_them(kind: Any, source: str) -> None:
    whole = problem(kind, source)
    assert set_apart(whole, 1) == whole
    shown = replace(whole, public_tests=TestSuite("calls", source))
    assert set_apart(shown, 1) == shown


def test_public_tests_of_another_kind_are_left_where_they_are() -> None:
    whole = replace(problem("calls", [{"args": [1], "expected": 1}] * 2), public_tests=TestSuite("check", CHECK))
    assert set_apart(whole, 1) == whole
    read = problem_of(row_of(whole) | {"prelude": "x = 1"})
    assert read.public_tests == whole.public_tests


@pytest.mark.skipif(not LEETCODE.exists(), reason="the LeetCodeDataset files are not beside this repository")
def test_every_leetcode_check_has_public_and_hidden_assertions_that_its_solution_passes() -> None:
    (path,) = LEETCODE.glob("*v0.3.1*")
    problems = read_problems(path).problems[::4]
    apart = [set_apart(found, 3) for found in problems]
    for before, after in zip(problems, apart, strict=True):
        assert len(assertions(after.public_tests)) == min(3, len(set(assertions(before.tests))) - 1)
        assert not set(assertions(after.public_tests)) & set(assertions(after.tests))
        assert {*assertions(after.public_tests), *assertions(after.tests)} == set(assertions(before.tests))
    few = apart[::6]
    shown = [replace(found, tests=found.public_tests) for found in few if found.public_tests]
    with LocalPool(ScorerConfig(workers=1)) as pool:
        verdicts = list(pool.score((found, found.solution) for found in [*few, *shown]))
    assert [verdict.status for verdict in verdicts] == ["passed"] * (2 * len(few))
    assert [v.tests_total for v in verdicts[len(few) :]] == [len(assertions(it.public_tests)) for it in few]
