"""What a question to a judge used: calls, tokens and money, counted for whoever asked.

    with counting(Terms(budget_usd=5.0, spent_usd=1.2)) as use:
        judge.label(problem, rollouts, verdicts)
    use["prompt_tokens"], use["known_usd"]

It goes beside the call, in a variable of the thread: a judge that counts calls `note` wherever it does, and a judge of
the user's own may or may not. A `Use` is additive; `told` gives it as JSON values, where an unknown cost is null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

Use = Mapping[str, float]
"""Counts by name (those of `raypoly.judge.openai.judge_stats.JudgeStats`); what is missing is 0. Money stands under
`known_usd` (answers whose price is known), `lost_usd` (the most that calls without an answer may have cost) and
`unpriced` (answers whose cost nobody knows); `cached_of` are the prompt tokens of answers that say what was cached."""
COUNTS = (
    "groups", "free", "cache_hits", "answers", "calls", "retries", "limited", "repairs", "refusals", "invalid",
    "unjudged", "failovers", "probes", "prompt_tokens", "cached_tokens", "completion_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Terms:
    """What whoever asks allows."""

    budget_usd: float | None = None
    spent_usd: float = 0.0
    """What it has spent of that before, as far as it knows."""
    fresh: bool = False
    """Whether a kept answer won't do."""


@dataclass(frozen=True)
class _Question:
    terms: Terms
    use: Counter[str] = field(default_factory=Counter)


_QUESTION: ContextVar[_Question | None] = ContextVar("judge_question", default=None)


@contextmanager
def counting(terms: Terms) -> Iterator[Counter[str]]:
    """Inside, and in this thread alone, the judge is asked on these terms; gives what that uses."""
    question = _Question(terms)
    token = _QUESTION.set(question)
    try:
        yield question.use
    finally:
        _QUESTION.reset(token)


def terms() -> Terms | None:
    """The terms of the question that this thread works on; None where nobody said."""
    question = _QUESTION.get()
    return None if question is None else question.terms


def note(name: str, amount: float) -> None:
    """Count for whoever asked; nothing where nobody wants to know."""
    question = _QUESTION.get()
    if question is not None and amount:
        question.use[name] += amount  # type: ignore[assignment]  # Counter is typed for whole numbers


def told(use: Use) -> dict[str, Any]:
    """All counts as JSON values, with `cost_usd`; null is what no server said."""
    known: dict[str, Any] = {name: round(value, 9) for name, value in use.items()}
    known |= {name: int(use.get(name, 0)) for name in COUNTS}
    if known["prompt_tokens"] and not use.get("cached_of"):
        known["cached_tokens"] = None
    return {**known, "cost_usd": None if use.get("unpriced") else round(use.get("known_usd", 0.0), 9)}


def spent_usd(use: Use) -> float:
    """What counts towards a budget, in US dollars."""
    return use.get("known_usd", 0.0) + use.get("lost_usd", 0.0)
