"""The verdict of an answer: a value, which is compared with the right one. No process is started and nothing is run.

answer_verdict(TestSuite("answer", "[1, 2]"), "assert f(2) == [1,2]").passed
"""

from __future__ import annotations

import ast
from typing import Any

from raypoly.core.values import Failure, TestSuite, Verdict
from raypoly.data.formats.python_source import parse_literal, parse_python
from raypoly.verifier.sandbox.outcome import one_line

_SHOWN = 200


def answer_verdict(tests: TestSuite, answer: str) -> Verdict:
    """`passed` or `wrong`; `tests` are of kind `answer`."""
    if _value(_claimed(answer)) == _value(tests.source):
        return Verdict("passed", 1, 1, 0.0)
    got, expected = (one_line(text, _SHOWN) for text in (answer_text(answer), tests.source))
    failure = Failure(1, "", got, expected)
    return Verdict("wrong", 0, 1, 0.0, one_line(f"the answer is {got}, expected {expected}"), failure=failure)


def answer_text(answer: str) -> str:
    """The answer's value as Python writes it; the text itself where it is no literal."""
    is_value, value = _value(_claimed(answer))
    try:
        return repr(value) if is_value else str(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        return answer.strip()


def _value(text: str) -> tuple[bool, Any]:
    """(Whether it is a Python literal, its value, or else the text)."""
    try:
        return True, parse_literal(text, "answer")
    except (ValueError, RecursionError, MemoryError):
        return False, text.strip()


def _claimed(answer: str) -> str:
    """The part of an answer that is its value: the right side of `f(...) == VALUE`, else all of it.

    That may be an assertion; then what follows its line may be prose.
    """
    text = answer.strip()
    for source in (text, text.partition("\n")[0]) if text.startswith("assert") else (text,):
        try:
            body = parse_python(source, "answer").body
        except ValueError:
            continue
        last = body[-1] if body else None
        claim = last.test if isinstance(last, ast.Assert) else last.value if isinstance(last, ast.Expr) else None
        if isinstance(claim, ast.Compare) and len(claim.ops) == 1 and isinstance(claim.ops[0], ast.Eq):
            return ast.get_source_segment(source, claim.comparators[0]) or text
    return text
