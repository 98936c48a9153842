"""Plan contract: the methods that are read from a plan, and what breaches the contract.

    plan = read_plan("A: Sort by end and take greedily.\\nB: Dynamic programming over sorted ends.\\n", methods=2)
    plan.keeps, plan.branches[1]        # True, "Dynamic programming over sorted ends."

A plan is a line for each method: a label (`A:`, `B:` ...) and one sentence of at most 45 words, without steps, code or
answer; nothing follows the last (arXiv 2605.27000, appendix B). An answer in words, or a program told as prose, is for
a model to find.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from raypoly.analysis.metrics.plan_diversity import wording
from raypoly.verifier.response_text import answered

BREACHES = ("missing", "extra", "empty", "long", "duplicate", "code")
"""missing: a label is not there, its line was cut off, or it comes after a label that is none of the plan's (`E:` of
four); extra: a line that is no method's, a label twice or one too many, a second sentence, steps; empty: a label
without a word; long: too many words; duplicate: a method twice, by `wording`; code: statements, calls of methods,
assignments, wherever they stand. A formula (`O(n log n)`) is no code."""

_LABELLED = re.compile(r"([A-Z]):(.*)")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|w\.r\.t|approx|resp|etc|vs|cf|eq)\.", re.IGNORECASE)
_SECOND_SENTENCE = re.compile(r"[.!?][\"')\]]?\s+[A-Z\d]")
_STEPS = re.compile(r"\bstep\s*\d|(?:^|\s)\(?1[.):]\s.*\s\(?2[.):]\s", re.IGNORECASE)
_CODE = re.compile(
    r"""``` | \bdef\s+\w+\s*\( | \bclass\s+[A-Z]\w*\s*[(:{] | \blambda\s+\w+(?:\s*,\s*\w+)*\s*: | \breturn\s+[\w.]+\(
    | \bfor\s+\w{1,2}(?:\s*,\s*\w+)*\s+in\s+\S+\s*: | \bfor\s+\w+(?:\s*,\s*\w+)*\s+in\s+\w+\(.*\)\s*:
    | \b(?:for|while|if)\s*\([^)]*\)\s*\{ | ^import\s+\w+ | \bfrom\s+[\w.]+\s+import\b | \#include\b | \bstd::
    | \bprint\( | \b[a-z_]\w*\.[a-z_]\w*\( | [+\-*/%&|^]=\s*[\w(\[-] | ^[\w.]+(?:\[[^\]]*\])*\s*=[^=] | [;{]$""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Plan:
    branches: tuple[str | None, ...]
    """By label, [K]; None where the label is missing or empty."""
    methods: tuple[str, ...]
    """Texts of the labels that were found."""
    breaches: tuple[str, ...]
    """In the order of `BREACHES`."""

    @property
    def keeps(self) -> bool:
        return not self.breaches


def read_plan(text: str, methods: int = 4, max_words: int = 45, cut: bool = False) -> Plan:
    """Any text is read, without its thoughts. Blank lines, white space around a line and the order of labels do not
    count.

    `cut`: the text ended at its token limit, so that a method in its last line is missing. Raises `ValueError` unless
    1 <= methods <= 26.
    """
    if not 1 <= methods <= len(ascii_uppercase):
        raise ValueError(f"a plan has 1 to {len(ascii_uppercase)} methods, one a letter, got {methods}")
    labels = ascii_uppercase[:methods]
    found, others = _by_label([line.strip() for line in answered(text).splitlines() if line.strip()], labels, cut)
    kept = tuple(found[label] for label in labels if label in found)
    branches = tuple(found[label] if wording(found.get(label, "")) else None for label in labels)
    return Plan(branches, kept, _breaches(kept, branches, others, max_words))


def _by_label(lines: Sequence[str], labels: str, cut: bool) -> tuple[Mapping[str, str], Sequence[str]]:
    """The text of each label, and the lines that are no method's."""
    found: dict[str, str] = {}
    others, ended = [], False
    for place, line in enumerate(lines, start=1):
        parts = _LABELLED.fullmatch(line)
        ended = ended or bool(parts and parts[1] not in labels)
        if not parts or ended or parts[1] in found:
            others.append(line)
        elif not cut or place < len(lines):
            found[parts[1]] = parts[2].strip()
    return found, others


def _breaches(
    kept: Sequence[str], branches: Sequence[str | None], others: Sequence[str], max_words: int
) -> tuple[str, ...]:
    written = [method for method in branches if method]
    broken = (
        len(kept) < len(branches),
        bool(others) or any(map(_says_more, written)),
        len(written) < len(kept),
        any(len(method.split()) > max_words for method in written),
        len(set(map(wording, written))) < len(written),
        any(_CODE.search(line) for line in (*written, *others)),
    )
    return tuple(name for name, is_broken in zip(BREACHES, broken, strict=True) if is_broken)


def _says_more(method: str) -> bool:
    # "e.g. X" is no end of a sentence
    return bool(_SECOND_SENTENCE.search(_ABBREVIATION.sub("", method)) or _STEPS.search(method))
