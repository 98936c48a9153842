"""Calls, tokens and money that questions to a judge use, who asks them, and what a run's judge has cost so far.

    with asking_for("run-3f2a"), count_usage(QuestionTerms(budget_usd=5.0, spent_usd=1.2)) as usage:
        judge.label(problem, rollouts, verdicts)            # in this thread current_asker() == "run-3f2a"
    usage["prompt_tokens"], usage["known_usd"]

Asker and terms are variables of the thread and no arguments, because a judge of the user's own need not know of them.
A shared judge serves several runs: the asker's name keeps their turns fair and their budgets apart.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

_RECENT = 20  # steps whose mean cost forecasts the next ones
_ASKER: ContextVar[str] = ContextVar("judge_asker", default="")
UsageCounts = Mapping[str, float]
"""Counts by the names of `JudgeStats`; what is missing is 0. Money stands under `known_usd` (answers whose price is
known), `lost_usd` (the most that calls without an answer may have cost) and `unpriced` (answers of unknown cost);
`cached_of` are the prompt tokens of answers that tell what was cached."""
_COUNTS = (
    "groups", "free", "cache_hits", "answers", "calls", "retries", "limited", "repairs", "refusals", "invalid",
    "unjudged", "failovers", "probes", "prompt_tokens", "cached_tokens", "completion_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class QuestionTerms:
    """What the asker of one question may spend, and whether a cached answer will do."""

    budget_usd: float | None = None
    spent_usd: float = 0.0
    """What the asker has spent of that before, as far as it knows."""
    fresh: bool = False
    """Whether to ask the judge even if its cache has an answer."""


_QUESTION: ContextVar[tuple[QuestionTerms, Counter[str]] | None] = ContextVar("judge_question", default=None)


def current_asker() -> str:
    """Empty where not set."""
    return _ASKER.get()


@contextmanager
def asking_for(name: str) -> Iterator[None]:
    token = _ASKER.set(name)
    try:
        yield
    finally:
        _ASKER.reset(token)


@contextmanager
def count_usage(terms: QuestionTerms) -> Iterator[Counter[str]]:
    """Ask on these terms within the block; gives the counts of what that uses."""
    usage: Counter[str] = Counter()
    token = _QUESTION.set((terms, usage))
    try:
        yield usage
    finally:
        _QUESTION.reset(token)


def current_terms() -> QuestionTerms | None:
    question = _QUESTION.get()
    return None if question is None else question[0]


def add_usage(name: str, amount: float) -> None:
    """Count for this thread's question; ignored where usage is not counted."""
    question = _QUESTION.get()
    if question is not None and amount:
        question[1][name] += amount  # type: ignore[assignment]  # Counter is typed for whole numbers


def usage_to_json(use: UsageCounts) -> dict[str, Any]:
    """All counts as JSON values, with `cost_usd`; null is unknown."""
    known: dict[str, Any] = {name: round(value, 9) for name, value in use.items()}
    known |= {name: int(use.get(name, 0)) for name in _COUNTS}
    if known["prompt_tokens"] and not use.get("cached_of"):
        known["cached_tokens"] = None
    return {**known, "cost_usd": None if use.get("unpriced") else round(use.get("known_usd", 0.0), 9)}


def spent_usd(use: UsageCounts) -> float:
    """What counts towards a budget, in US dollars."""
    return use.get("known_usd", 0.0) + use.get("lost_usd", 0.0)


@dataclass(frozen=True)
class JudgeSpending:
    """What one run's own questions used."""

    use: Mapping[str, float]
    cost_usd: float | None
    a_step_usd: float | None
    since: int


def sum_spending(rows: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> JudgeSpending | None:
    """What a run's judge cost, from the rows of metrics.jsonl and the evaluations; None for an offline judge."""
    counted = [row for row in rows if row.get("judge_step")]
    if not counted:
        return None
    steps = [row["judge_step"] for row in counted]
    every = [*steps, *(e["judge"] for e in evaluations if e.get("judge"))]
    usage: Counter[str] = Counter()
    for counts in every:
        usage.update({name: value for name, value in counts.items() if name != "cost_usd" and value is not None})
    total, a_step = _sum_known([c["cost_usd"] for c in every]), recent_mean([s["cost_usd"] for s in steps])
    return JudgeSpending(usage, total, a_step, counted[0]["step"])


def recent_mean(costs: Sequence[float | None]) -> float | None:
    """Mean cost of the newest steps; None where one is unknown, or there is none."""
    newest = costs[-_RECENT:]
    summed = _sum_known(newest)
    return summed / len(newest) if newest and summed is not None else None


def _sum_known(costs: Sequence[float | None]) -> float | None:
    """None where one is unknown."""
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if len(known) == len(costs) else None


def dollars(amount: float) -> str:
    """`$0.016`, `$1.3`, `$1,304`: two digits that say something, all of those before the point."""
    if amount >= 10:
        return f"${amount:,.0f}"
    digits = 1 if amount >= 1 else max(2, 1 - math.floor(math.log10(amount))) if amount > 0 else 0
    return f"${amount:.{digits}f}"


@dataclass(frozen=True)
class JudgeStats:
    """Counts since the judge was made. Unknown is None, never 0."""

    groups: int
    free: int
    """Groups that needed no asking: all programs alike, or none there."""
    cache_hits: int
    """One a vote."""
    answers: int
    """Answers used, one a vote."""
    calls: int
    """Requests sent, repeated ones and repairs included, probes not."""
    retries: int
    limited: int
    """Requests answered 429."""
    repairs: int
    """Answers sent back as unusable."""
    refusals: int
    """Answers that refused, or that a filter cut."""
    invalid: int
    """Answers unusable even after a repair, or cut by length."""
    unjudged: int
    """Groups given up for good (`JudgeRefused`)."""
    shortened: int
    """Programs cut in their middle."""
    failovers: int
    """Answers that came from the second server."""
    probes: int
    prompt_tokens: int
    cached_tokens: int | None
    """Prompt tokens that the server had cached; None where it never said."""
    completion_tokens: int
    cost_usd: float | None
    """None where a price, or the tokens of an answer, are unknown."""
    away_since: datetime | None


class JudgeCounters:
    """Named counters that threads share; each count also goes to the usage of the thread's question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, amount: float = 1) -> None:
        with self._lock:
            self._counts[name] += amount  # type: ignore[assignment]  # Counter is typed for whole numbers
        add_usage(name, amount)

    def stats(self, away_since: datetime | None = None) -> JudgeStats:
        with self._lock:
            counts = self._counts.copy()
        known: dict[str, Any] = {field.name: counts[field.name] for field in fields(JudgeStats)}
        known["cached_tokens"] = counts["cached_tokens"] if counts["cached_of"] else None
        known["cost_usd"] = None if counts["unpriced"] else float(counts["known_usd"])
        return JudgeStats(**{**known, "away_since": away_since})
