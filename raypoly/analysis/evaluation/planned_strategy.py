"""Which strategy a method names, in the names that execution traces have: for comparing what was planned and done."""

from __future__ import annotations

import re

# in the order in which they are looked for: a while loop is a loop too
_WORDS = {
    "reduce": r"\b(?:reduce|fold(?:s|ing)?|accumulate with)\b",
    "comprehension": r"\b(?:comprehensions?|generator expressions?)\b",
    "higher_order": r"\b(?:map|filter|higher[- ]order)\b",
    "recursion": r"\b(?:recurs\w+|calls? itself)\b",
    "while": r"\bwhile\b(?:[- ]loops?)?",
    "for": r"\b(?:for[- ]loops?|loops?|iterat\w+)\b",
}


def planned_strategy(method: str) -> str | None:
    """`recursion`, `while`, `for` ...; None where the method names none of them."""
    return next((name for name, words in _WORDS.items() if re.search(words, method, re.IGNORECASE)), None)


def is_followed(method: str, done: str | None) -> bool | None:
    """Whether code does what its method says, by `done`, its strategy by execution. None, unknown, where the method
    names no construct, or the code shows none: an approach, such as `scan`, may be written with any."""
    planned = planned_strategy(method)
    return None if planned is None or done not in (*_WORDS, "direct") else planned == done
