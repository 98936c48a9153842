"""What is right by each data set's way to compare, and what costs hours in none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest

from raypoly.core.config import OutputComparison
from raypoly.core.values import Comparison, Problem, TestKind, TestSuite
from raypoly.verifier.sandbox.comparisons import same_output, same_value

MODES: Mapping[OutputComparison, str] = {"exact": "e", "lines": "l", "tolerance": "t", "tokens": "k"}
"""With the letters that stand for them below."""


@pytest.mark.parametrize(
    ("printed", "expected", "modes"),
    [
        ("a b\n1.50", "a b\n1.50\n\n", "eltk"), ("", "\n", "eltk"), ("x", "", ""), ("", "x", ""),
        # blanks, lines and words
        ("1  2\t3", "1 2 3", "ltk"), ("  x \r\ny", "x\ny", "ltk"), ("\n\n5", "5", "ltk"), ("a  b", "a b", "k"),
        ("a\n\nb", "a\nb", "tk"), ("a\nb", "a\n\nb\n", "tk"), ("1 2", "1\n2", "k"), ("Yes", "YES", "k"),
        ("1\n2", "1\n2\n3", ""), ("1\n2\n3", "1\n2", ""), ("a", "b", ""), ("\u212a", "K", ""),
        ("1\x0c2", "1 2", ""), ("1\x0b2", "1 2", ""), ("1\xa02", "1 2", ""), ("2\0", "2", ""), ("1\r2", "1\n2", "k"),
        # floats
        ("1.4142135623730951", "1.41421356", "tk"), ("1.0 2.50", "1.00 2.5", "ltk"), ("0.00001", "1e-05", "ltk"),
        ("-0.0", "0.0", "ltk"), ("+.5", "0.50", "ltk"), ("2", "2.000", "ltk"), ("1.42", "1.41421356", ""),
        ("Case #1: 0.5", "Case #1: 0.500", "tk"), ("case #1: 0.5", "Case #1: 0.500", "k"),
        ("100000.5", "100000.1", "t"), ("0.000009", "0.0", "k"), ("0.00000001", "0.0", "tk"), ("0.0002", "0.0001", ""),
        ("0.5 x", "0.5 y", ""), ("x 0.5", "0.5 x", ""), ("1_0.5", "10.5", ""), ("\u0661.\u0665", "1.5", ""),
        # an expected integer is text
        ("1000.0", "1000", "ltk"), ("1000.", "1000", "ltk"), ("-0.0", "0", "ltk"), ("-3.00", "-3", "ltk"),
        ("101", "00000101", ""), ("1 5", "01 05", ""), ("021", "21", ""), ("021.0", "21", ""), ("+5", "5", ""),
        ("1_000", "1000", ""), ("\uff11\uff10", "10", ""), ("\u0661", "1", ""), ("1000.001", "1000", ""),
        ("1e3", "1000", ""), ("0e999999", "0", ""), ("-0", "0", ""), ("0x10", "16", ""), ("1000.0", "01000", ""),
        ("7", "7.0", "ltk"), ("9007199254740992.0", "9007199254740993", ""), ("7 0.33333333", "7 0.33333", "tk"),
        # what is no number, and what is too large for one
        ("NaN", "nan", "k"), ("nan", "1.5", ""), ("sNaN1", "1.0", ""), ("nan 0.50", "nan 0.5", "tk"),
        ("inf", "Infinity", "ltk"), ("-inf", "inf", ""), ("1e999", "inf", ""), ("1e999", "1e998", ""),
        ("1e9", "inf", ""), ("1e999999999", "1.5", ""), ("10e999999998", "1e999999999", "ltk"),
        ("1e99999999999999999999", "1e5", ""),
        # figures
        ("*\n***", "  *\n ***\n", "k"), ("  *\n ***", "  *\n ***\n", "eltk"), ("  *\n ***", "*\n ***", "ltk"),
        ("* *\n***", "*  *\n***", "k"), ("Ab:\nc", "Ab:\n  c", "k"), ("yes\nno", " yes\n no", "ltk"),
        ("1\n2", "1\n 2", "ltk"), ("1 2\n\t3", "1 2\n    3.0", "ltk"), ("a\n\tb", "a\n    b", "k"),
    ],
)  # fmt: skip
def test_each_mode_takes_what_its_data_sets_grader_takes(printed: str, expected: str, modes: str) -> None:
    assert "".join(letter for mode, letter in MODES.items() if same_output(printed, expected, mode)) == modes


@pytest.mark.parametrize(
    ("result", "expected", "modes"),
    [
        ([1, 2], [1, 2], "eltk"), ((1, (2, 3)), [1, [2, 3]], "ltk"), ({"a": (1,)}, {"a": [1]}, "ltk"),
        ([1, 2], [2, 1], ""), ([1], [1, 2], ""), ([1, 2], [1], ""), ([], {}, ""), ("12", ["1", "2"], ""),
        (4, 4.0, "eltk"), (4.0, 4, "eltk"), (True, 1, "eltk"), (None, None, "eltk"), ("1", 1, ""), (None, False, ""),
        (2**0.5, 1.41421, "tk"), ([(2**0.5, "x")], [[1.41421, "x"]], "tk"), ({"a": 2**0.5}, {"a": 1.41421}, "tk"),
        (1.4143, 1.41421, ""), (1000.0001, 1000, ""), ("1.0", 1.0, ""), (1e-9, 0.0, "tk"), (3 + 0j, 3.1, ""),
        (float("nan"), 1.5, ""), (float("nan"), float("nan"), ""), (1e300, float("inf"), ""), (10**400, 1.5, ""),
        (float("-inf"), float("inf"), ""), (float("inf"), float("inf"), "eltk"), ([10**5000], [1e308], ""),
        ({1: 2}, {"1": 2}, "tk"), ({1: 2, "1": 2}, {"1": 2}, ""), ({"1": 2}, {"1": 2}, "eltk"),
        ({True: 2}, {"x": 2}, ""), ({"b": 1}, {"a": 1}, ""), ({10**5000: 1}, {"a": 1}, ""), ({1, 2}, [1, 2], ""),
    ],
)  # fmt: skip
def test_values_are_compared_as_json_with_a_tolerance_where_the_grader_has_one(
    result: Any, expected: Any, modes: str
) -> None:
    assert "".join(letter for mode, letter in MODES.items() if same_value(result, expected, mode)) == modes
    assert same_value(result, expected, "json") is same_value(result, expected, "tolerance")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_too_deep_to_compare_is_no_match() -> None:
    assert not any(same_value(nested(50_000), nested(50_001), mode) for mode in get_args(Comparison))


SIZE = 1 << 19
HOSTILE = {
    "digits": ("1" * SIZE, "1" * SIZE + ".5"),
    "digits and a letter": ("1" * SIZE + "x", "1" * SIZE + ".5"),
    "digits before a point": ("1" * SIZE + ".", "1" * SIZE + "." + "1" * 9),
    "an exponent": ("1e" + "9" * SIZE, "1." + "0" * SIZE),
    "zeros": ("0." + "0" * SIZE, "0." + "0" * SIZE + "1"),
    "signs": ("-" * SIZE, "1." + "0" * SIZE),
    "words": ("a " * SIZE, "a " * (SIZE - 1) + "b"),
    "floats": ("1.5 " * (SIZE // 4), "1.50 " * (SIZE // 4 - 1) + "1.6"),
    "lines": ("\n" * SIZE + "a", "\n" * SIZE + "b"),
    "indented lines": (" \n" * (SIZE // 2) + "a", " a\n  b\n" * (SIZE // 8)),
    "blanks": (" " * SIZE + "a", "a" + " " * SIZE + "b"),
    "carriage returns": ("\r" * SIZE + "1", "1." + "0" * SIZE),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_outputs_take_linear_time(name: str) -> None:
    printed, expected = HOSTILE[name]
    begin = time.process_time()
    for mode in MODES:
        same_output(printed, expected, mode)
    assert time.process_time() - begin < 20, "quadratic time would be minutes"


@pytest.mark.parametrize(
    ("kind", "checker", "default"),
    [("stdin", "", "tolerance"), ("stdin", "print(1)", "lines"), ("calls", "", "exact"), ("operations", "", "exact")],
)
def test_another_comparison_is_another_suite_and_the_default_need_not_be_said(
    kind: TestKind, checker: str, default: Comparison
) -> None:
    suite = TestSuite(kind, "[]", checker=checker)
    assert suite == TestSuite(kind, "[]", default, checker)
    assert replace(suite, source="[1]").comparison == default
    assert len({suite.compared_by(mode).hash for mode in MODES}) == len(MODES)
    assert suite.compared_by("lines").hash == suite.compared_by("tolerance").compared_by("lines").hash
    problem = Problem("p", "", "", suite, public_tests=suite)
    assert problem.compared_by("format") is problem
    changed = problem.compared_by("tokens")
    assert changed.public_tests == changed.tests == suite.compared_by("tokens")


def test_tests_that_compare_by_themselves_have_one_way() -> None:
    for kind in ("check", "answer", "none"):
        suite = TestSuite(kind, "def check(candidate): pass")
        assert suite.compared_by("tokens") is suite


def test_the_hashes_of_tests_that_have_always_stated_theirs_stay() -> None:
    assert TestSuite("calls", "[]").hash.startswith("1acfaabe")
    assert TestSuite("calls", "[]", "json").hash.startswith("38749395")
