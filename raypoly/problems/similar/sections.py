r"""The part of a text that says what the problem is: headings, examples and constraints are cut off.

    statement("Add two numbers.\n\nBeispiel 1:\n\nEingabe: 1, 2\n")       # "Add two numbers."

Headings are known in the languages in which data sets of problems appear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from raypoly.problems.similar.headings import KINDS, key

_LONGEST_HEADING = 60
_DATA = re.compile(r"""\s*(?:[-+]?\d|["'\[({]|[^\W\d]\w*\s*=(?!=))""")
_LITERAL = re.compile(r"\[[^\[\]\n\d]*\d[^\[\]\n]*\]")
_WORD = re.compile(r"[^\W\d_]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_FOR_EXAMPLE = re.compile(
    r"\b(?:for\s+example|for\s+instance|e\.g\.)[^)]{0,600}?(?:[.!?](?=\s|$)|\)|\Z)", re.IGNORECASE
)
SHORTEST = 4
"""Words. Where less is left, the text is laid out in another way, and all of it is the statement."""

State = Literal["kept", "example", "constraints"]


def statement(text: str) -> str:
    """The lines that are neither heading, nor example, nor constraint."""
    kept = list(_kept(text))
    if sum(len(_WORD.findall(line)) for line in kept) < SHORTEST:
        kept = text.split("\n")
    return _FOR_EXAMPLE.sub(" ", _LITERAL.sub(" ", "\n".join(kept))).strip()


def _kept(text: str) -> Iterator[str]:
    state: State = "kept"
    for line in text.split("\n"):
        kind, rest = _heading(line)
        if kind in ("example", "constraints"):
            state = "example" if kind == "example" else "constraints"
        elif kind == "statement":
            state = "kept"
        elif kind == "within" and state != "example":
            state = "example" if _DATA.match(rest) else "kept"
        if state == "kept":
            yield rest if kind else line


def _heading(line: str) -> tuple[str, str]:
    """The kind of heading that a line is or starts with, and what stands behind it; no kind for any other line."""
    head, _, rest = re.sub("[：﹕]", ":", line).partition(":")
    if len(head) > _LONGEST_HEADING:
        return "", line
    kind = KINDS.get(key(head), "")
    return kind, rest if kind else line
