"""Text for people: what others wrote, made safe to look at, durations and sizes.

visible("if user != 'admin\u202e'")       # the mark is six characters, \\u202e, and turns nothing around
duration(270)                             # 4.5 min
format_bytes(66_900_000_000)              # 62.3 GiB
"""

from __future__ import annotations

_SELECTORS = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
# fillers, a joiner, variation selectors: Python calls them printable, and a screen shows nothing
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(c) for c in _SELECTORS}


def visible(text: str) -> str:
    """Escape, as Python would write them, characters that show nothing or change how others are shown.

    These are controls, terminal escapes, bidirectional marks, zero-width characters, strange blanks, lone surrogates.
    Tabs and line ends stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c in "\n\t" or (c.isprintable() and c not in _BLANK) else c.encode("unicode_escape").decode()
        for c in text.replace("\r\n", "\n")
    )


def as_utf8(text: str) -> str:
    """The text with backslash escapes for what UTF-8 can't hold: lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def shortened(text: str, most: int) -> str:
    """A text of more characters than `most` without its middle, which a line stands for."""
    if len(text) <= most:
        return text
    left_out = len(text) - most
    return (
        f"{text[: most - most // 2]}\n[... {left_out:,} characters are left out ...]\n{text[len(text) - most // 2 :]}"
    )


def duration(seconds: float) -> str:
    """`1.2 s`, `12 s`, `4.5 min`, `7.1 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_bytes(count: int | None) -> str:
    """`62.3 GiB`, `3.4 MiB`, `unknown`."""
    if count is None:
        return "unknown"
    return f"{count / (1 << 30):.1f} GiB" if count >= (1 << 30) // 10 else f"{count / (1 << 20):.1f} MiB"
