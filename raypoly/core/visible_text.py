"""Text that a model, a judge or a data set wrote, made safe to look at.

visible("if user != 'admin\u202e'")       # the mark is six characters, \\u202e, and turns nothing around
html_text("</pre><script>")               # visible, and escaped for HTML
json_element("data", values)              # JSON within a page that can't end its own element
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_SELECTORS = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(c) for c in _SELECTORS}
"""Characters that count as printable and show nothing: fillers, a joiner, variation selectors."""


def visible(text: str) -> str:
    """The text with its characters that show nothing, or that change how others are shown, as Python would write them.

    These are controls, terminal escapes, bidirectional marks, zero-width characters, strange blanks, lone surrogates.
    Tabs and line ends stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c in "\n\t" or (c.isprintable() and c not in _BLANK) else c.encode("unicode_escape").decode()
        for c in text.replace("\r\n", "\n")
    )


def html_text(text: str) -> str:
    """The text for HTML, also for the value of an attribute."""
    return escape(visible(text))


def json_element(name: str, values: Mapping[str, Any] | Sequence[Any]) -> str:
    """A `<script>` of JSON with the id `name`, which no browser runs. No text in it can close it or open a comment."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    for mark in "<>&":  # they occur in strings only
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'
