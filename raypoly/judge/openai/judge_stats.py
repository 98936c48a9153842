"""Counts of what a judge did so far, for metrics and reports."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from raypoly.judge.judge_usage import add_usage


@dataclass(frozen=True)
class JudgeStats:
    """Counts since the judge was made. Unknown is None, never 0."""

    groups: int
    """Groups that got labels."""
    free: int
    """Of these, groups that needed no asking: all programs alike, or none there."""
    cache_hits: int
    """Answers found in the cache (one a vote)."""
    answers: int
    """Answers that the servers gave and that were used (one a vote)."""
    calls: int
    """Requests sent, repeated ones and repairs included, probes not."""
    retries: int
    """Requests that repeated one which was not served."""
    limited: int
    """Requests answered 429."""
    repairs: int
    """Answers sent back because they could not be used."""
    refusals: int
    """Answers that refused to label, or were cut by the server's filter."""
    invalid: int
    """Answers that could not be used even after a repair, or were cut by length."""
    unjudged: int
    """Groups given up for good (`JudgeRefused`)."""
    shortened: int
    """Programs shown with their middle cut out."""
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
    """Since when the first server is away."""


class JudgeCounters:
    """Named counters that threads share; each count also goes to the usage of the thread's question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counter: Counter[str] = Counter()

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counter[name] += amount
        add_usage(name, amount)

    def __getitem__(self, name: str) -> int:
        with self._lock:
            return self._counter[name]
