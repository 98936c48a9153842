"""Answers to problems that ask for a value (tests of kind `answer`): found in a response, compared, never run.

    extract_answer("f adds one.\\n[ANSWER]\\nassert f(2) == 3\\n[/ANSWER]")       # "assert f(2) == 3"
    answer_verdict(TestSuite("answer", "[1, 2]"), "assert f(2) == [1,2]").passed

Extraction parses nothing and takes linear time.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from raypoly.core.values import Failure, TestSuite, Verdict
from raypoly.data.formats.python_source import parse_literal, parse_python
from raypoly.verifier.sandbox.outcome import one_line

_OPEN, _CLOSE = "[ANSWER]", "[/ANSWER]"


def extract_answer(response: str) -> str | None:
    """Text of the answer; None if there is none.

    In the last `[ANSWER]` element that is not blank, which may lack its end, or its start where the prompt ends in
    that; else anywhere. There the last assertion counts, up to a blank line or a fence; else the last fenced block;
    else the whole element, or without one the response's last line, less Markdown's marks.
    """
    opened = response.split(_OPEN)
    elements = [part.partition(_CLOSE)[0] for part in (opened[1:] or opened[:1])]
    element = next((part for part in reversed(elements) if part.strip()), "")
    lines = element.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "").strip().strip("`*")
    whole = element if _OPEN in response or _CLOSE in response else last
    return (_last_assertion(lines) or _last_block(lines) or whole).strip() or None


def _last_assertion(lines: Sequence[str]) -> str:
    begins = ("assert ", "assert(")
    start = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].lstrip().startswith(begins)), len(lines))
    end = next((at for at in range(start, len(lines)) if not lines[at].strip() or _is_fence(lines[at])), len(lines))
    return "\n".join(lines[start:end])


def _last_block(lines: Sequence[str]) -> str:
    """The last fenced block that is not blank; it may lack its end. Empty if there is none."""
    found, block = "", list[str]()
    inside = False
    for line in [*lines, "```"]:
        if _is_fence(line):
            found = "\n".join(block) if "".join(block).strip() else found
            block, inside = [], not inside
        elif inside:
            block.append(line)
    return found


def _is_fence(line: str) -> bool:
    return line.lstrip().startswith("```")


_SHOWN = 200


def answer_verdict(tests: TestSuite, answer: str) -> Verdict:
    """`passed` or `wrong`; `tests` are of kind `answer`."""
    if _value(_claimed(answer)) == _value(tests.source):
        return Verdict("passed", 1, 1, 0.0)
    got, expected = (one_line(text, _SHOWN) for text in (answer_text(answer), tests.source))
    failure = Failure(1, "", got, expected)
    return Verdict("wrong", 0, 1, 0.0, one_line(f"the answer is {got}, expected {expected}"), failure=failure)


def answer_text(answer: str) -> str:
    """The value as Python writes it; the text itself where it is no literal."""
    is_value, value = _value(_claimed(answer))
    try:
        return repr(value) if is_value else str(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        return answer.strip()


def _value(text: str) -> tuple[bool, Any]:
    try:
        return True, parse_literal(text, "answer")
    except (ValueError, RecursionError, MemoryError):
        return False, text.strip()


def _claimed(answer: str) -> str:
    # the right side of `f(...) == VALUE`, else all of it; behind an assertion's line there may be prose
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
