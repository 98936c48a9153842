"""Which texts the judge is shown for a group, each once, and which rollout each stands for.

    shown = show(problem, rollouts, verdicts, view="canonical", limit=8000)
    shown.texts   ->  ("def f(v0): ...", ...)     shown.places  ->  (0, 1, None, 0)

No code is degenerate without asking. A program that does not parse may be an honest attempt: it is shown as it was
written. Texts are sorted by their hash, so nothing depends on the order of the rollouts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from raypoly.judge.openai.judge_prompt import cut
from raypoly.scoring.code_extraction import extract_code
from raypoly.values import Problem, Rollout, Verdict


@dataclass(frozen=True)
class Shown:
    """The distinct programs of a group of N rollouts."""

    texts: tuple[str, ...]
    """In the order of their hashes."""
    hashes: tuple[str, ...]
    places: tuple[int | None, ...]
    """For each rollout the index of its text; None where it has no code."""
    parsed: bool
    """Whether every text came from a program that parses."""
    shortened: int
    """Texts that were cut in their middle."""

    @property
    def certain(self) -> bool:
        """Whether nothing has to be asked: no program at all, or one alone that parses."""
        return not self.texts or (len(self.texts) == 1 and self.parsed)


def show(
    problem: Problem,
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    view: Literal["canonical", "raw"],
    limit: int,
) -> Shown:
    """What is shown of N rollouts; texts longer than `limit` characters are cut in their middle."""
    whole = [_text(problem, rollout, verdict, view) for rollout, verdict in zip(rollouts, verdicts, strict=True)]
    by_text = {text: cut(text, limit) for text in whole if text is not None}
    by_hash = {digest(shown): shown for shown in by_text.values()}
    hashes = tuple(sorted(by_hash))
    index = {found: place for place, found in enumerate(hashes)}
    return Shown(
        texts=tuple(by_hash[found] for found in hashes),
        hashes=hashes,
        places=tuple(None if text is None else index[digest(by_text[text])] for text in whole),
        parsed=all(v.evidence is not None for text, v in zip(whole, verdicts, strict=True) if text is not None),
        shortened=sum(len(text) > limit for text in by_text),
    )


def digest(text: str) -> str:
    """16 hex digits of SHA-256."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _text(problem: Problem, rollout: Rollout, verdict: Verdict, view: str) -> str | None:
    if verdict.status == "no_code":
        return None
    if view == "canonical" and verdict.evidence is not None and verdict.evidence.canonical.strip():
        return verdict.evidence.canonical
    return extract_code(problem, rollout.text)
