"""Rows whose tests are Python (LeetCodeDataset, HumanEval, MBPP) mean what their authors' harness says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raypoly.data.formats import problem_of, program_of
from tests.raypoly.data.format_rows import (
    APPS,
    CONTEST,
    HELPER,
    HUMANEVAL,
    LCB,
    LEETCODE,
    MBPP,
    PLUS,
    Row,
    passes,
    refusal,
)


@pytest.mark.parametrize("row", [LEETCODE, HUMANEVAL, HELPER, MBPP, PLUS], ids=lambda row: str(row["task_id"]))
def test_the_data_sets_solution_passes_its_check_and_one_that_returns_nothing_fails(row: Row) -> None:
    problem = problem_of(row, "somewhere")
    assert problem.tests.kind == "check"
    assert (problem.id, problem.source) == (str(row["task_id"]), "somewhere")
    assert passes(problem, problem.solution)
    name = problem.entry_point.rpartition(".")[2]
    broken = f"class Solution:\n    def {name}(*a, **k): pass\ndef {name}(*a, **k): return ()\n"
    assert not passes(problem, broken)


@pytest.mark.parametrize("row", [HUMANEVAL, HELPER, MBPP, PLUS, LCB, APPS, CONTEST], ids=lambda row: str(list(row)[:2]))
def test_prompts_ask_for_a_code_block_and_never_hold_the_solution(row: Row) -> None:
    problem = problem_of(row)
    assert problem.prompt.endswith("Answer with one Python code block.\n")
    last = (problem.solution or "no solution").strip().splitlines()[-1]
    assert last not in problem.prompt


def test_a_leetcode_row_without_a_question_can_still_be_scored() -> None:
    assert problem_of(LEETCODE).prompt == ""
    assert problem_of(LEETCODE | {"query": "Find two."}).prompt == "Find two."


@pytest.mark.parametrize("row", [LEETCODE, HUMANEVAL])
def test_a_line_that_would_run_the_check_is_cut_off(row: Row) -> None:
    line = f"\n\ncheck({row['entry_point']})\n"
    assert problem_of(row | {"test": row["test"] + line}).tests.source.rstrip() == row["test"].rstrip()


def test_helpers_in_front_of_a_humaneval_signature_reach_the_check() -> None:
    problem = problem_of(HELPER)
    assert problem.prelude.lstrip().startswith("def encode_shift")
    assert problem.prefix.startswith("def decode_shift")


def test_a_decorator_belongs_to_the_signature_and_endless_ones_are_read_in_time() -> None:
    signature = "@cache\n@wraps(len)\nasync def f(n):\n"
    row = HUMANEVAL | {"prompt": f"import math\n{signature}", "entry_point": "f"}
    assert (problem_of(row).prelude, problem_of(row).prefix) == ("import math\n", signature)
    assert problem_of(row | {"prompt": signature}).prefix == signature
    assert len(problem_of(row | {"prompt": "@a\n" * 300_000 + signature}).prefix) > 900_000
    assert problem_of(row | {"prompt": "@a\n" * 300_000 + "\n" + signature}).prefix == signature


BODY = HUMANEVAL["canonical_solution"]
DEDENTED = "\n".join(line[4:] for line in BODY.splitlines())
WHOLE = HUMANEVAL["prompt"] + BODY


@pytest.mark.parametrize("answer", [BODY, DEDENTED, WHOLE, WHOLE.replace("    ", "\t")], ids=range(4))
def test_a_body_alone_and_a_whole_function_are_the_same_program(answer: str) -> None:
    problem = problem_of(HUMANEVAL)
    assert passes(problem, program_of(problem, answer))


def test_code_is_left_alone_where_it_defines_what_is_called_or_no_prefix_is_wanted() -> None:
    problem = problem_of(HUMANEVAL)
    for code in (WHOLE, "has_close_elements = print", f"def has_close_elements(a, b):\n    return ((\n{BODY}"):
        assert program_of(problem, code) == code
    assert program_of(replace(problem, answer="completion"), BODY) == BODY
    assert program_of(problem_of(MBPP), "return 1") == "return 1"
    nested = "    def has_close_elements(): pass\n    return 1\n"
    assert program_of(problem, nested) == problem.prefix + nested


def test_given_imports_never_stand_in_for_the_function_that_is_called() -> None:
    star = "from operator import *\n"
    called = {"entry_point": "add", "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n"}
    mbpp = {"code": "def add(a, b): return a + b", "test_list": ["assert add(1, 2) == 3"], "test_imports": [star]}
    for row in (
        LEETCODE | called | {"prompt": star},
        HUMANEVAL | called | {"prompt": f"{star}\ndef add(a, b):\n", "canonical_solution": "    return a + b\n"},
        MBPP | mbpp,
        APPS,
    ):
        namespace: dict[str, Any] = {}
        exec(problem_of(row).prelude, namespace)
        assert problem_of(row).entry_point == "add"
        assert "sub" in namespace
        assert "add" not in namespace


def test_mbpps_simple_assertions_become_plain_calls_of_the_candidate() -> None:
    problem = problem_of(MBPP)
    assert problem.entry_point == "remove_Occ"
    assert problem.tests.source.splitlines()[1] == "    assert candidate('hello', 'l') == 'heo'"
    assert 'assert remove_Occ("hello","l")' in problem.prompt


def test_mbpp_tests_may_use_given_imports_and_those_of_the_solution() -> None:
    lines = {"test_list": ["assert math.isclose(half(1), 0.5)", "assert half(gcd(2, 4)) == 1"]}
    row = MBPP | lines | {"test_imports": ["import math"], "code": "from math import gcd\ndef half(n):\n  return n / 2"}
    problem = problem_of(row)
    assert problem.prelude == "import math\n"
    assert passes(problem, "def half(n):\n  return n / 2")
    assert not passes(problem, "def half(n):\n  return n / 3")


def test_an_mbpp_function_may_have_a_builtins_name_or_be_found_without_a_solution() -> None:
    assert (
        problem_of(MBPP | {"code": "def sum(a, b): return 6", "test_list": ["assert sum(10, 15) == 6"]}).entry_point
        == "sum"
    )
    row = MBPP | {"code": None, "test_imports": ["import math"], "test_list": ["assert math.floor(max(f(1), 2)) == 2"]}
    assert problem_of(row).entry_point == "f"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"code": "class Pair: pass\ndef chain(a): pass", "test_list": ["assert chain([Pair(5, 24)]) == 3"]},
            "build objects of Pair",
        ),
        (
            {
                "code": "class Node: pass\ndef height(n): pass",
                "test_setup_code": "root = Node(1)\r\nroot.left = Node(2)",
                "test_list": ["assert height(root) == 2"],
            },
            "build objects of Node",
        ),
        ({"code": "def f(): pass\ndef g(): pass", "test_list": ["assert f() == g()"]}, "f and g"),
        ({"test_list": ["assert 1 == 1"]}, "call nothing"),
        ({"test_list": ["assert remove_Occ(x) == 1"]}, "x is defined neither"),
        ({"test_list": ["assert remove_Occ("]}, "not Python"),
        ({"test_list": []}, "test_list"),
        ({"test": "x = [" + "1," * 600_000 + "]"}, "too many"),
    ],
)
def test_mbpp_rows_whose_tests_need_more_than_one_function_are_refused(changes: Row, reason: str) -> None:
    assert reason in refusal(MBPP | changes)
