"""The contract of a plan: K labelled methods, one sentence each, and nothing else (CPPO, arXiv 2605.27000).

plan = read_plan("A: Sort and take greedily.\\nB: Use dynamic programming.\\n", methods=2)
plan.keeps, plan.method(0)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

MAX_WORDS = 45
BREACHES = ("missing", "extra", "empty", "long", "duplicate", "code")
_LABEL = re.compile(r"\s*([A-Z])[:)][ \t]*(.*?)\s*$")
_CODE = re.compile(
    r"```|\bdef\s+\w+\s*\(|\bclass\s+\w+\s*[(:]|\blambda\b[^.]*:|^\s*(?:import|from)\s+\w+|\bfor\s+\w+\s+in\b[^.]*:"
    r"|\bprint\s*\(|[\w\])]\s*(?:[-+*/]?=|==)\s*[\w(\['\"-]|\breturn\s+\w+\s*[(\[]"
)


@dataclass(frozen=True)
class Plan:
    """What a response says, read by its labels."""

    by_label: tuple[str | None, ...]
    """[K]: the text behind each label; None where it is not there."""
    breaches: tuple[str, ...]
    """In the order of `BREACHES`."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The texts that are there, in the order of their labels."""
        return tuple(text for text in self.by_label if text is not None)

    @property
    def keeps(self) -> bool:
        """Whether it breaches nothing."""
        return not self.breaches

    def method(self, place: int) -> str | None:
        """The method of a label; None where it is missing or empty."""
        return self.by_label[place] or None


def labels(methods: int) -> str:
    """The labels of so many methods."""
    return ascii_uppercase[:methods]


def read_plan(text: str, methods: int = 4, max_words: int = MAX_WORDS) -> Plan:
    """The methods of a response, and what it breaches.

    missing     a label is not there
    extra       a further or repeated label, or any other line of text
    empty       a label without a method
    long        a method of more than `max_words` words
    duplicate   two methods that differ in case, punctuation and white space at most
    code        a method that looks like code
    """
    found: dict[str, str] = {}
    extra = False
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label and label[1] in labels(methods) and label[1] not in found:
            found[label[1]] = label[2]
        elif line.strip():
            extra = True
    by_label = tuple(found.get(label) for label in labels(methods))
    known = [text for text in by_label if text]
    breached = {
        "missing": len(found) < methods,
        "extra": extra,
        "empty": "" in found.values(),
        "long": any(len(method.split()) > max_words for method in known),
        "duplicate": has_duplicates(known),
        "code": any(_CODE.search(method) for method in known),
    }
    return Plan(by_label, tuple(name for name in BREACHES if breached[name]))


def has_duplicates(methods: Sequence[str]) -> bool:
    """Whether two methods say the same, case, punctuation and white space apart."""
    plain = [plain_words(method) for method in methods]
    return len(set(plain)) < len(plain)


def plain_words(method: str) -> str:
    """A method's words without case and punctuation."""
    return " ".join(re.sub(r"[\W_]+", " ", method.lower()).split())
