"""One text for all programs that differ in words only: what a judge is shown, and by what answers are remembered.

    canonical("class Solution:\\n def twice(self, n: int): return n * 2  # easy", "Solution().twice").text
    ->  "def a(b): return b * 2"

Comments, docstrings, annotations, imports, the spelling of library names and literals, the class around the entry,
and code without effect are gone; own names are letters. Run, it gives what the program gives. Few tokens are part of
the purpose: one blank a level, and a block of one short statement on its head's line. `source` may be hostile: it is
parsed, never run.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from raypoly.strategies.live_code.live_program import LiveProgram, live_program

_JOINED = ("if ", "for ", "while ", "def ", "with ", "elif ", "else:", "async ")
"""Lines that a block of one short statement may follow."""
_COMPOUND = (*_JOINED, "class ", "try:", "match ", "case ", "@")
_LONGEST_LINE = 120


@dataclass(frozen=True)
class Canonical:
    """The canonical form of a program."""

    text: str
    entry: str
    """What the entry is called there: `a`, or `a().b` where it is a method still; empty where there is none."""


def canonical(source: str, entry: str = "") -> Canonical:
    """The canonical form; `entry` is `f` or `Solution().method`, empty for a whole program. Raises `SyntaxError`."""
    live = live_program(source, entry)
    return Canonical(canonical_text(live), live.entry)


def canonical_text(live: LiveProgram) -> str:
    """The text of a live program."""
    return _narrow(ast.unparse(live.tree))


def _narrow(text: str) -> str:
    """The text with one blank a level, no blank lines, and blocks of one statement on the line of their head."""
    if '"""' in text or "'''" in text:
        return text  # a string goes over lines, whose blanks are its own
    lines = [(len(line) - len(line.lstrip(" ")), line.lstrip(" ")) for line in text.split("\n") if line.strip()]
    found: list[str] = []
    at = 0
    while at < len(lines):
        depth, line = lines[at]
        at += 1
        if line.startswith(_JOINED) and line.endswith(":") and at < len(lines):
            inner, body = lines[at]
            alone = at + 1 == len(lines) or lines[at + 1][0] < inner
            if alone and not body.startswith(_COMPOUND) and len(line) + len(body) < _LONGEST_LINE:
                line, at = f"{line} {body}", at + 1
        found.append(" " * (depth // 4) + line)
    return "\n".join(found)
