"""How programs are written: their comments and names, which a judge of texts may be taken in by.

style = program_style("def add(first, second):  # adds\n    return first + second\n")
style.comment_share, style.identifier_length        # 0.11, 5.0

Nothing is parsed: one pass of a pattern over the text, which takes linear time for any text.
"""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass

_PARTS = re.compile(
    r"""(?P<string>\"{3}(?:(?!\"{3}).)*+(?:\"{3})? | '{3}(?:(?!'{3}).)*+(?:'{3})?
                  | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'?)
    | (?P<comment>\#[^\n]*+) | (?P<name>[^\W\d]\w*+)""",
    re.DOTALL | re.VERBOSE,
)
"""A string that nobody closes ends with its line, or with the text; nothing is tried twice."""
_NOT_CHOSEN = frozenset({*keyword.kwlist, *dir(builtins), "self"})
"""Names that nobody chose."""


@dataclass(frozen=True)
class ProgramStyle:
    """Of one program."""

    comment_share: float
    """Characters of comments (`# ...`), as a share of all that are not blank."""
    identifier_length: float | None
    """Mean characters of the names in it, each as often as it stands there, without keywords and built-in names; None
    where there is none."""


def program_style(code: str) -> ProgramStyle | None:
    """None for a blank text."""
    size = sum(not letter.isspace() for letter in code)
    if not size:
        return None
    comments, lengths = 0, []
    for part in _PARTS.finditer(code):
        if comment := part["comment"]:
            comments += sum(not letter.isspace() for letter in comment)
        elif (name := part["name"]) and name not in _NOT_CHOSEN:
            lengths.append(len(name))
    return ProgramStyle(comments / size, sum(lengths) / len(lengths) if lengths else None)
