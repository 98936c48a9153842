"""Votes see inputs alone: nothing that is known to be right is in what is run."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from raypoly.core.config import ProblemsConfig, ScorerConfig
from raypoly.core.values import Problem, TestSuite, Verdict
from raypoly.data.formats.long_integers import long_integers
from raypoly.data.public_tests import example_inputs
from raypoly.data.puzzles import load_puzzles
from raypoly.verifier import LocalPool


def problem(kind: str, cases: object) -> Problem:
    return Problem("p", "Double x.", "f" if kind == "calls" else "", TestSuite(kind, json.dumps(cases)))  # type: ignore[arg-type]


def gave(found: Problem, code: str) -> Sequence[Verdict]:
    with LocalPool(ScorerConfig(workers=1, isolation="none", evidence=False)) as pool:
        return list(pool.score((example, code) for example in example_inputs(found)))


def test_a_program_shows_what_it_gives_right_or_wrong() -> None:
    found = problem("calls", [{"args": [x], "expected": 2 * x} for x in (1, 2, 3, 4, 5)])
    assert [v.failure.got for v in gave(found, "def f(x): return 2 * x\n") if v.failure] == ["2", "4", "6"]
    assert [v.failure.got for v in gave(found, "def f(x): return x\n") if v.failure] == ["1", "2", "3"]
    assert [v.status for v in gave(found, "def f(x): return 1 / 0\n")] == ["error"] * 3


def test_whole_programs_and_operations_show_what_they_give() -> None:
    found = problem("stdin", [{"input": "3\n", "output": "6\n"}, {"input": "4\n", "output": "8\n"}])
    assert [v.failure.got for v in gave(found, "print(2 * int(input()))") if v.failure] == ["'6\\n'"]
    calls = {"operations": ["Twice", "of"], "args": [[], [4]], "expected": [None, 8]}
    found = problem("operations", [calls, {**calls, "args": [[], [5]]}])
    code = "class Twice:\n    def of(self, x):\n        return 2 * x\n"
    assert [v.failure is not None and "8" in v.failure.got for v in gave(found, code)] == [True]
    (example,) = example_inputs(found)
    assert json.loads(example.tests.source)[0]["expected"] == "no program gives this: raypoly asks what is given"


@pytest.mark.parametrize("place", range(3))
def test_nothing_that_is_expected_is_in_what_is_run(place: int) -> None:
    found = load_puzzles(ProblemsConfig()).splits["train"][place]
    for example in example_inputs(found):
        (case,) = json.loads(example.tests.source)
        assert "no program gives this" in case["expected"]
        assert example.solution == ""


@pytest.mark.parametrize("source", ["[{", "{}", "[3, 4]"])
def test_broken_tests_state_no_inputs(source: str) -> None:
    assert not example_inputs(Problem("p", "", "f", TestSuite("calls", source)))


def test_integers_of_any_length_are_inputs() -> None:
    long = 10**5000
    found = Problem(
        "p",
        "",
        "f",
        TestSuite("calls", f'[{{"args": [1{"0" * 5000}], "expected": 1}}, {{"args": [1], "expected": 1}}]'),
    )
    (example,) = example_inputs(found)
    with long_integers():
        assert json.loads(example.tests.source)[0]["args"] == [long]


def test_a_check_states_no_inputs() -> None:
    assert not example_inputs(
        Problem("p", "", "f", TestSuite("check", "def check(candidate):\n    assert candidate(1)\n"))
    )
