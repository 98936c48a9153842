"""Tests as the sandbox takes them, written case by case so that a long list is never held twice as objects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from raypoly.problems.formats.long_integers import dumps
from raypoly.values import Comparison, TestSuite

_RUNS_CHECK = re.compile(r"\ncheck\([\w.() \t]*\)\s*\Z")


def call_suite(cases: Iterable[tuple[list[Any], Any]], comparison: Comparison = "json") -> TestSuite:
    """Tests that call a function: (arguments, expected). Raises `ValueError` where there is none."""
    return TestSuite("calls", _json_list({"args": args, "expected": expected} for args, expected in cases), comparison)


def stdin_suite(cases: Iterable[tuple[str, str]], checker: str = "") -> TestSuite:
    """Tests that run a whole program: (standard input, expected output). Raises `ValueError` where there is none."""
    source = _json_list({"input": given, "output": output} for given, output in cases)
    return TestSuite("stdin", source, checker=checker)


def check_suite(source: str) -> TestSuite:
    """Tests that are a function `check_suite(candidate)`; a last line that would run it here and now is cut off.

    Raises `ValueError` where there is no such function.
    """
    if "def check(" not in source:
        raise ValueError("test: does not define check(candidate)")
    return TestSuite("check", _RUNS_CHECK.sub("\n", source))


def _json_list(cases: Iterable[dict[str, Any]]) -> str:
    text = ", ".join([dumps(case) for case in cases])
    if not text:
        raise ValueError("there are no tests")
    return f"[{text}]"
