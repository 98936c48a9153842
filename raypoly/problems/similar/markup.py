r"""Text out of markup: HTML, Markdown, LaTeX and the many ways in which Unicode writes the same letter.

    strip_markup("<p>Given <code>n</code> &lt; 10<sup>5</sup></p>").text     # "\nGiven n < 105\n"

Powers lose their mark (`10^5`, `10**5`, `10<sup>5</sup>` and `10⁵` are `105`): some data sets have lost it already.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass

_BLOCKS = "p|br|div|li|ul|ol|pre|h[1-6]|table|tr|td|th|hr|section|blockquote|center|tbody|thead"
_INLINE = "sup|sub|code|strong|b|em|i|u|span|font|img|a|var|tt|small|big|kbd|s"
_ATTRIBUTES = r"""(?:\s+[\w:-]+(?:\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s<>"']+)))*\s*/?"""
_BLOCK = re.compile(rf"</?(?:{_BLOCKS}){_ATTRIBUTES}>", re.IGNORECASE)
_CODE_SPAN = re.compile(r"<(code|var|tt|kbd)>([^<>]{1,80})</\1>", re.IGNORECASE)
_TAG = re.compile(rf"</?(?:{_INLINE}){_ATTRIBUTES}>|<!--.{{0,2000}}?-->", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)|~~~[^\n~]*\n(.*?)(?:~~~|\Z)", re.DOTALL)
_TICKS = re.compile(r"`([^`\n]{1,80})`")
_MATH = re.compile(r"\${1,3}([^$\n]{1,200})\${1,3}")
_LINK = re.compile(r"!?\[([^\]\n]{0,200})\]\([^)\s]{1,500}\)")
_POWER = re.compile(r"(?<=\w)(?: ?\^ ?|\*\*|(?<=\d) \*\* (?=\d))[{(]?(-?\w+)[})]?")
_COMMAND = re.compile(r"\\(?:[a-zA-Z]+|[^a-zA-Z\s])")


@dataclass(frozen=True)
class PlainText:
    """What a text says, without what makes it look good."""

    text: str
    spans: tuple[str, ...]
    """What was set as code or mathematics within a line: mostly names of variables."""
    code: tuple[str, ...]
    """Fenced blocks, which are no part of the text."""


def strip_markup(text: str) -> PlainText:
    """The text in lines; tags that no browser knows (`i <n`) are text."""
    text = _BLOCK.sub("\n", _CODE_SPAN.sub(r"`\2`", text))
    text = html.unescape(_TAG.sub("", text))
    text = unicodedata.normalize("NFKC", _TAG.sub("", _BLOCK.sub("\n", text)))
    text = "".join(c for c in text.replace("\r", "\n") if c.isascii() or unicodedata.category(c) != "Cf")
    code = tuple(first or second for first, second in _FENCE.findall(text))
    text = _FENCE.sub("\n", text)
    spans = (*_TICKS.findall(text), *_MATH.findall(text))
    text = _MATH.sub(r" \1 ", _LINK.sub(r"\1", text.replace("`", "")))
    return PlainText(_COMMAND.sub(" ", _POWER.sub(r"\1", text)), spans, code)
