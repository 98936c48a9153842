"""Rows whose tests are inputs and outputs: LiveCodeBench, APPS, TACO, CodeContests and what is made from them."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from raypoly.data.formats import problem_of
from tests.raypoly.data.format_rows import (
    APPS,
    CONTEST,
    FUNCTIONAL,
    LCB,
    STDIN,
    Row,
    cases,
    refusal,
)
from tests.raypoly.data.source_rows import packed


def test_livecodebench_functional_tests_are_calls_with_json_arguments() -> None:
    problem = problem_of(LCB | {"private_test_cases": packed(FUNCTIONAL)})
    assert (problem.tests.kind, problem.tests.comparison) == ("calls", "lines")
    assert problem.entry_point == "Solution().twoSum"
    assert cases(problem) == [{"args": [[2, 7, 11], 9], "expected": [0, 1]}] * 2
    namespace: dict[str, Any] = {}
    exec(problem.prelude, namespace)
    assert namespace["pow"] is pow
    assert {"List", "deque", "heappush", "lru_cache", "inf", "math", "accumulate"} <= namespace.keys()


def test_livecodebench_programs_read_standard_input() -> None:
    row = LCB | {"public_test_cases": json.dumps(STDIN), "metadata": "{}", "starter_code": ""}
    problem = problem_of(row)
    assert (problem.tests.kind, problem.entry_point) == ("stdin", "")
    assert cases(problem) == [{"input": "3\n1 2 3\n", "output": "6\n"}]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"private_test_cases": "rubbish"}, "private_test_cases: neither JSON nor packed JSON"),
        ({"private_test_cases": packed(FUNCTIONAL)[:-24]}, "private_test_cases"),
        ({"private_test_cases": packed({"a": 1})}, "private_test_cases"),
        ({"metadata": "{}"}, "func_name"),
        ({"private_test_cases": json.dumps(STDIN)}, "testtype"),
        ({"public_test_cases": "[]"}, "no tests"),
        ({"public_test_cases": json.dumps([FUNCTIONAL[0] | {"input": "two"}])}, "test 0"),
        ({"metadata": '{"func_name": "f()"}'}, "not the name of a function"),
    ],
)
def test_livecodebench_rows_that_cannot_be_used_say_why(changes: Row, reason: str) -> None:
    assert reason in refusal(LCB | changes)


def apps(outputs: list[Any], starter: str = "", fn_name: str | None = "add") -> Row:
    tests = {"inputs": [[1, 2]] * len(outputs), "outputs": outputs} | ({"fn_name": fn_name} if fn_name else {})
    return APPS | {"starter_code": starter, "input_output": json.dumps(tests)}


def test_an_apps_function_is_called_and_its_first_solution_in_python_3_is_taken() -> None:
    problem = problem_of(APPS)
    assert (problem.id, problem.entry_point, problem.tests.comparison) == ("7", "add", "json")
    assert cases(problem) == [{"args": [1, 2], "expected": 3}, {"args": [3, 4], "expected": 7}]
    assert problem.solution.startswith("def add")
    method = problem_of(apps([3], "class Solution:\n    def add(self, a: int, b: int) -> int:\n        "))
    assert method.entry_point == "Solution().add"


@pytest.mark.parametrize(
    ("outputs", "returns", "expected"),
    [
        ([[3], [7]], "", [3, 7]),
        ([3, [7]], "", [3, [7]]),
        ([[3, 4], [7]], "", [[3, 4], [7]]),
        ([[3]], " -> int", [3]),
        ([[3]], " -> List[int]", [[3]]),
        ([[[3, 4]]], " -> List[int]", [[3, 4]]),
        ([[[3, 4]]], " -> List[List[int]]", [[[3, 4]]]),
        ([[]], "", [[]]),
    ],
)
def test_wrapped_outputs_are_unwrapped_unless_the_annotation_explains_the_list(
    outputs: list[Any], returns: str, expected: list[Any]
) -> None:
    assert [case["expected"] for case in cases(problem_of(apps(outputs, f"def add(a, b){returns}:\n\t")))] == expected


def test_apps_programs_take_texts_and_lists_of_lines() -> None:
    tests = {"inputs": ["1 2\n", ["1", "2"]], "outputs": ["3\n", [3]]}
    problem = problem_of(APPS | {"input_output": json.dumps(tests)})
    assert cases(problem) == [{"input": "1 2\n", "output": "3\n"}, {"input": "1\n2", "output": "3"}]


def test_numbers_of_thousands_of_digits_are_read_and_pythons_limit_stays() -> None:
    limit = sys.get_int_max_str_digits()
    digits = "9" * 6000
    text = json.dumps({"fn_name": "add", "inputs": [[1]], "outputs": ["BIG"]}).replace('"BIG"', digits)
    assert digits in problem_of(APPS | {"input_output": text}).tests.source
    assert "input_output" not in refusal(APPS | {"input_output": text.replace(digits, "9" * 100_001)})
    assert sys.get_int_max_str_digits() == limit


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"input_output": ""}, "no tests"),
        ({"input_output": '{"inputs": [], "outputs": []}'}, "no tests"),
        ({"input_output": '{"inputs": ["1"], "outputs": []}'}, "1 inputs, but 0 outputs"),
        ({"input_output": '{"inputs": [{}], "outputs": [1]}'}, "neither text nor a list of lines"),
        ({"input_output": '{"inputs": [1], "outputs": [1], "fn_name": "f"}'}, "not a list of arguments"),
        ({"input_output": "[1]"}, "row:"),
    ],
)
def test_apps_rows_that_cannot_be_used_say_why(changes: Row, reason: str) -> None:
    assert reason in refusal(APPS | changes)


def test_taco_rows_without_a_name_get_an_id_from_their_content() -> None:
    row = {name: value for name, value in APPS.items() if name != "problem_id"}
    first, second = problem_of(row), problem_of(row | {"question": "Subtract."})
    assert first.id != second.id
    assert first.id == problem_of(row).id


def test_code_contests_gathers_all_tests_and_a_python_3_solution() -> None:
    problem = problem_of(CONTEST)
    assert cases(problem) == [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}]
    assert problem.solution.startswith("print(sum(")
    as_list = CONTEST | {"public_tests": [{"input": "1 2\n", "output": "3\n"}]}
    assert problem_of(as_list).tests.hash == problem.tests.hash


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"public_tests": {"input": ["1"], "output": []}}, "public_tests"),
        ({"public_tests": 7}, "public_tests"),
    ],
)
def test_code_contests_rows_that_cannot_be_used_say_why(changes: Row, reason: str) -> None:
    assert reason in refusal(CONTEST | changes)
