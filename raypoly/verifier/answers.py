"""Answers to problems that ask for a value (tests of kind `answer`): found in a response, compared, never run.

    extract_answer("f adds one.\\n[ANSWER]\\nassert f(2) == 3\\n[/ANSWER]")       # "assert f(2) == 3"
    answer_verdict(TestSuite("answer", "[1, 2]"), "assert f(2) == [1,2]").passed

Extraction parses nothing and takes linear time.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from raypoly.core.values import Failure, TestSuite, Verdict
from raypoly.data.formats.mathematics import last_boxed
from raypoly.data.formats.python_source import parse_python
from raypoly.verifier.sandbox.outcome import one_line

_MOST_CLAIMS = 100
_OPEN, _CLOSE = "[ANSWER]", "[/ANSWER]"
_MARK = re.compile(r"####[ \t]*([^\s#].*)")


def extract_answer(response: str) -> str | None:
    """Text of the answer; None if there is none.

    In the last `[ANSWER]` element that is not blank, which may lack its end, or its start where the prompt ends in
    that; else anywhere. There counts what the last `\\boxed{...}` holds, nothing where its brace is never closed; else
    what follows `####` in the last line, as GSM8K's solutions end; else the last assertion, with those on the lines in
    front of it, up to a blank line or a fence; else the last fenced block; else the whole element, or without one the
    response's last line, less Markdown's marks.
    """
    opened = response.split(_OPEN)
    elements = [part.partition(_CLOSE)[0] for part in (opened[1:] or opened[:1])]
    element = next((part for part in reversed(elements) if part.strip()), "")
    lines = element.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "").strip().strip("`*")
    whole = element if _OPEN in response or _CLOSE in response else last
    boxed = last_boxed(element)
    if boxed is None:
        return None
    found = _MARK.match(next((line for line in reversed(lines) if line.strip()), ""))
    marked = boxed or (found[1] if found else "")
    return (marked or _last_assertion(lines) or _last_block(lines) or whole).strip() or None


def _last_assertion(lines: Sequence[str]) -> str:
    begins = ("assert ", "assert(")
    starts = [at for at, line in enumerate(lines) if line.lstrip().startswith(begins)]
    start = starts[-1] if starts else len(lines)
    end = next((at for at in range(start, len(lines)) if not lines[at].strip() or _is_fence(lines[at])), len(lines))
    before = start
    while before - 1 in starts[-_MOST_CLAIMS:]:
        before -= 1
    return "\n".join([*(line.lstrip() for line in lines[before : start + 1]), *lines[start + 1 : end]])


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
# An answer so much longer than the expected one is wrong unread: a syntax tree takes microseconds a character.
_LONGER, _SMALL = 16, 1 << 16
# keys of one hash in a set or a dict: a response could choose thousands, and hold the scorer for minutes
_COLLIDING = 64
_Value = tuple[bool, Any]
"""Whether it is a literal; its value, or its text."""


def answer_verdict(tests: TestSuite, answer: str) -> Verdict:
    """`passed`, `wrong`, or `no_code` for two different answers; `tests` are of kind `answer`."""
    claim, *others = _claims(answer, _LONGER * len(tests.source) + _SMALL)
    if any(other != claim for other in others):
        return Verdict("no_code", 0, 0, 0.0, "two different answers in the response")
    if claim == _expected(tests.source):
        return Verdict("passed", 1, 1, 0.0)
    got, expected = (one_line(text, _SHOWN) for text in (_text(claim, answer), tests.source))
    failure = Failure(1, "", got, expected)
    return Verdict("wrong", 0, 1, 0.0, one_line(f"the answer is {got}, expected {expected}"), failure=failure)


def _text(claim: _Value, answer: str) -> str:
    is_value, value = claim
    try:
        return repr(value) if is_value else str(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        return answer.strip()


def _claims(answer: str, most: int) -> list[_Value]:
    """What each `f(...) == VALUE` says, else all of it. Behind assertions there may be prose."""
    text = answer.strip()
    if len(text) > most:
        return [(False, text)]
    lines = text.split("\n")
    last = max((at for at, line in enumerate(lines) if line.startswith("assert")), default=0)
    for source in (text, "\n".join(lines[: last + 1]), lines[0]) if text.startswith("assert") else (text,):
        try:
            body = parse_python(source, "answer").body
        except ValueError:
            continue
        claims = [claim for statement in body if (claim := _claim(statement, text, len(body) == 1))]
        return claims or [(False, text)]
    return [(False, text)]


def _claim(statement: ast.stmt, text: str, alone: bool) -> _Value | None:
    said = getattr(statement, "test" if isinstance(statement, ast.Assert) else "value", None)
    match said:
        case ast.Compare(left, [ast.Eq()], [right]) if not _value(left, text)[0]:  # `1 == 7` says nothing of a call
            return _value(right, text)
    if not isinstance(statement, ast.Expr):
        return None
    value = _value(statement.value, text)
    return value if value[0] or alone else None


def _expected(source: str) -> _Value:
    try:
        body = parse_python(source.strip(), "answer").body
    except ValueError:
        body = []
    if len(body) == 1 and isinstance(body[0], ast.Expr):
        return _value(body[0].value, source.strip())
    return False, source.strip()


def _value(node: ast.expr, text: str) -> _Value:
    try:
        return True, _literal(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        pass
    try:
        return False, ast.unparse(node)
    except (ValueError, RecursionError):
        return False, text


def _literal(node: ast.expr) -> Any:
    for part in ast.walk(node):
        keys = part.elts if isinstance(part, ast.Set) else part.keys if isinstance(part, ast.Dict) else []
        if len(keys) > _COLLIDING:
            different = {ast.dump(key): key for key in keys if key is not None}
            hashes = Counter(hash(ast.literal_eval(key)) for key in different.values())
            if max(hashes.values()) > _COLLIDING:
                raise ValueError("keys that could be made to collide")
    return ast.literal_eval(node)
