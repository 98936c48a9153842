"""Answers of mathematics are compared by value, however they are written, and a hostile one costs its own row alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction

import pytest

from raypoly.algorithms.objectives.behaviour import outcome_of
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import problem_of
from raypoly.verifier import math_answers
from raypoly.verifier.code_extraction import extract_code
from raypoly.verifier.sandbox import Sandbox
from tests.support.arithmetic_rows import NOTATIONS, arithmetic_rows, stated

pytest.importorskip("math_verify", reason="needs raypoly's extra math")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(cpu_seconds_per_test=2)) as opened:
        yield opened


def asks(expected: str) -> Problem:
    return Problem("p", "", "", TestSuite("answer", expected, "math"))


def test_two_hundred_problems_in_eight_notations_are_told_apart_without_exception(sandbox: Sandbox) -> None:
    mistaken = []
    for number, (row, value) in enumerate(arithmetic_rows(7)):
        problem = problem_of(row)
        for answer, right in ((value, True), (value + Fraction(1 + number % 3, 4), False), (-value - 1, False)):
            verdict = sandbox.score(problem, extract_code(problem, stated(answer, number % NOTATIONS)))
            if verdict.status != ("passed" if right else "wrong"):
                mistaken.append((problem.tests.source, stated(answer, number % NOTATIONS), verdict))
    assert mistaken == []


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("0.5", "\\frac12"),
        ("\\frac{3}{4}", ".75"),
        ("3\\frac12", "3 1/2"),
        ("1234", "1\\,234"),
        ("500000", "5e5"),
        ("0.5", "50\\%"),
        ("50", "50 percent"),
        ("18", "\\$18"),
        ("18", "18\\text{ dollars}"),
        ("18", "18\\text{ cm}^2"),
        ("[1,2)", "\\left[1, 2\\right)"),
        ("(-\\infty,3]", "(-\\infty, 3]"),
        ("\\{1,2\\}", "\\left\\{2, 1\\right\\}"),
        ("1,2", "2 \\text{ and } 1"),
        ("3\\sqrt{2}", "\\sqrt{18}"),
        ("x^2+2x+1", "(x+1)^2"),
        ("\\text{Tuesday}", "Tuesday"),
        ("1.2e-7", "0.00000012"),
        ("(1,3)", "\\left( 1, 3 \\right)"),
        ("5t", "5 t"),
        ("x^2+c", "c+x^2"),
    ],
)
def test_equal_values_are_right(sandbox: Sandbox, expected: str, answer: str) -> None:
    assert sandbox.score(asks(expected), answer).passed


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("[1,2)", "[1,2]"),
        ("\\{1,2\\}", "\\{1,2,3\\}"),
        ("\\pi", "3.14"),
        ("\\frac13", "0.3333"),
        ("0", "0.0000001"),
        ("18", "18 or 19"),
        ("18", "18\\text{ or 19}"),
        ("18", "18\\text{ hours and }5\\text{ minutes}"),
        ("18", "18\\text{ million}"),
        ("18", "18, 19"),
        ("18", "18 19"),
        ("18", "18 = 19"),
        ("18", "\\frac{18}{0}"),
        ("18", "__import__('os').getpid() or 18"),
        ("18", "\\}"),
        ("18", "18} + \\boxed{18"),
        ("18", "18" + " " * 5000 + "or 19"),
        ("5t", "5"),
        ("5t", "5h"),
        ("(-1,3)", "\\{-1,3\\}"),
        ("(-1,3)", "-1, 3"),
        ("\\{-1,3\\}", "(-1,3)"),
        ("\\frac{1}{3000000}", "0.0"),
        ("1.2e-7", "0.0"),
        ("\\text{Tuesday}", "Monday"),
    ],
)
def test_other_values_and_more_than_one_are_wrong(sandbox: Sandbox, expected: str, answer: str) -> None:
    assert sandbox.score(asks(expected), answer).status == "wrong"


def test_equal_wrong_answers_are_one_vote(sandbox: Sandbox) -> None:
    one, two, other = (sandbox.score(asks("\\frac13"), text) for text in ("0.75", "\\frac{3}{4}", "0.8"))
    assert outcome_of(one) == outcome_of(two) != outcome_of(other)
    assert two.detail == "the answer is \\frac{3}{4}, expected \\frac13"


@pytest.mark.parametrize("answer", ["10^{10^{10}}", "{" * 500 + "5" + "}" * 500, "{" * 1_000_000, "\\boxed{" * 100_000])
def test_a_hostile_answer_costs_its_own_row_alone(sandbox: Sandbox, answer: str) -> None:
    start = time.process_time()
    verdict = sandbox.score(asks("\\frac12"), extract_code(asks("1"), f"\\boxed{{{answer}}}"))
    assert verdict.status in ("wrong", "timeout", "memory", "error", "no_code")
    assert verdict.repeatable == (verdict.status != "timeout")
    assert sandbox.score(asks("\\frac12"), "0.5").passed
    assert time.process_time() - start < 3, "nothing of it is read here"


def test_a_right_answer_that_cannot_be_compared_is_the_problems_fault(sandbox: Sandbox) -> None:
    with pytest.raises(BrokenTests, match="can't be compared even with 0"):
        sandbox.score(asks("10^{10^{10}}"), "\\frac12")


def test_without_math_verify_numbers_and_equal_texts_are_judged_and_other_answers_are_not(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(math_answers, "knows_math", lambda: False)
    assert sandbox.score(asks("1,234"), "$1234.0$").passed
    assert sandbox.score(asks("\\frac12"), "\\frac12.").passed
    unknown = sandbox.score(asks("0.5"), "\\frac12")
    assert (unknown.status, unknown.detail) == (
        "infra",
        f"The answer to problem p is not judged: {math_answers.MISSING}",
    )
