"""What of a problem the judge has to read: the task, without its examples, its constraints and its code to complete.

    essence("Add a and b.\\n\\nExample 1:\\n\\nInput: a = 1, b = 2\\nOutput: 3\\n\\nConstraints:\\n\\n1 <= a <= 9")
    ->  "Add a and b."

Approaches are told apart by the programs; the statement says what they are after. Samples and bounds are a third of
what real problems say, and no help with that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LEAST = 60
"""Characters that have to remain, else the statement is taken as it is."""
_HEAD = re.compile(r"[ \t#*_]*([A-Za-z][A-Za-z -]{2,24}?)[ \t]*\d*[ \t]*[*_]*:[ \t*_]*(.*)")
_LEFT_OUT = frozenset(
    {
        "answer", "constraint", "constraints", "example", "examples", "explanation", "format", "input", "output",
        "sample", "sample input", "sample output",
    }
)  # fmt: skip
_BEGINS = re.compile(r"^[ \t#*_]*(?:question|problem|task|description)[ \t]*:[ \t*_]*", re.IGNORECASE | re.MULTILINE)
_CODE = re.compile(r"(?:^[^\n]*:[ \t]*\n)?^[ \t]*```.*?(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_BLANKS = re.compile(r"\s*\n\s*")


def essence(statement: str) -> str:
    """The statement without those parts, as it is where hardly anything would remain."""
    text = statement.replace("\xa0", " ")
    begin = _BEGINS.search(text)
    body = _CODE.sub("", text[begin.end() :] if begin else text)
    kept = _BLANKS.sub("\n", "\n".join(_lines(body))).strip()
    return kept if len(kept) >= LEAST else statement


def _lines(text: str) -> Iterator[str]:
    """Lines outside of the parts that are left out; such a part goes on to the next heading of another kind."""
    left_out = False
    for line in text.split("\n"):
        head = _HEAD.fullmatch(line)
        if head is not None:
            name = head[1].strip().lower()
            left_out = name in _LEFT_OUT or (left_out and not _is_heading(line))
        if not left_out:
            yield line


def _is_heading(line: str) -> bool:
    """`Note: the answer fits` and `## Follow up` begin another part; `Explanation of it: ...` within one does not."""
    return bool(re.match(r"[ \t]*(?:#|\*\*|Note|Notes|Follow)", line))
