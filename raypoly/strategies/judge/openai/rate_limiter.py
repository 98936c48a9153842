"""When the next request may go: requests and tokens a minute, pauses that the server asks for, calls in flight.

    shared = SharedLimiter(RateLimiter(requests=None, tokens=None, concurrency=64))
    sent = shared.enter(tokens=2400, check=breaker.check)
    ...                                  # the call
    shared.leave(lambda limiter, now: limiter.answered(sent, now, 2311, headers))

The first call goes alone, because its answer tells the limits; then twice as many at each round, until a refusal or a
failure halves them. While a server is away, a `CircuitBreaker` lets one trial at a time pass.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from raypoly.core.errors import JudgeUnavailable
from raypoly.strategies.judge.fair_queue import FairQueue
from raypoly.strategies.judge.judge_usage import current_asker
from raypoly.strategies.judge.openai.rate_window import RateUse, RateWindow

_LONGEST_PAUSE = 60.0  # the most seconds of a pause after a refusal that names no moment
_TOKEN_MARGIN = 0.015  # larger than that of requests: tokens are estimated until the answer counts them
_LATELY, _OFTEN = 0.05, 0.15  # weight of the newest answer in the share of refusals, and the share that means a limit
_LOOK = 1.0  # seconds between a waiting thread's checks
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


@dataclass(frozen=True)
class SentRequest:
    at: float
    request: RateUse
    tokens: RateUse


class RateLimiter:
    """Limits of one server and key: pure state, without clock or thread."""

    def __init__(self, requests: int | None, tokens: int | None, concurrency: int) -> None:
        self.requests, self.tokens = RateWindow(requests, guesses=True), RateWindow(tokens, margin=_TOKEN_MARGIN)
        self._most = concurrency
        self._allowed = 1.0
        self._starting = True
        self._in_flight = 0
        self._paused_until = float("-inf")
        self._cut_at = float("-inf")
        self._refusals = 0
        self._refused_share = 0.0

    @property
    def allowed(self) -> int:
        return int(self._allowed)

    def delay(self, now: float, tokens: float) -> float | None:
        """Seconds until a request of about so many tokens may go; None: a call in flight has to end first."""
        if self._in_flight >= self.allowed:
            return None
        return max(0.0, self._paused_until - now, self.requests.delay(now, 1), self.tokens.delay(now, tokens))

    def start(self, now: float, tokens: float) -> SentRequest:
        self._in_flight += 1
        return SentRequest(now, self.requests.use(now, 1), self.tokens.use(now, tokens))

    def answered(self, sent: SentRequest, now: float, tokens: float | None, headers: Mapping[str, str]) -> None:
        """`tokens` used; None if the server does not say."""
        self._in_flight -= 1
        self._refusals = 0
        self._refused_share *= 1 - _LATELY
        if tokens is not None:
            self.tokens.correct(sent.tokens, tokens)
        self._hear(sent, now, headers)
        self._allowed = min(self._most, self._allowed + (1 if self._starting else 1 / self._allowed))

    def refused(self, sent: SentRequest, now: float, headers: Mapping[str, str]) -> None:
        """An answer 429: nothing goes before the moment that it names, or within a growing pause."""
        self._in_flight -= 1
        self.tokens.correct(sent.tokens, 0)
        self._refused_share += _LATELY * (1 - self._refused_share)
        self._hear(sent, now, headers)
        # Calls that were in flight together are refused together. Only the first of them tells something new: the
        # others were sent before the cut that it made.
        if sent.at >= self._cut_at:
            self._refusals += 1
            windows = self.requests, self.tokens
            burst = not any(window.nearly_used(now) for window in windows)
            for window in windows:
                window.refused(now, burst, often=self._refused_share > _OFTEN)
            self._cut(now)
            # from here on there are no bursts of a known limit, so as many as before may soon be in flight
            self._starting = burst and any(window.known for window in windows)
        pause = parse_retry_after(headers)
        if pause is None:
            pause = _reset(headers)
        if pause is None:
            pause = min(_LONGEST_PAUSE, 2.0 ** (self._refusals - 1))
        self._paused_until = max(self._paused_until, now + pause)

    def failed(self, sent: SentRequest, now: float) -> None:
        """No answer, or an error: fewer go at once."""
        self._in_flight -= 1
        if sent.at >= self._cut_at:
            self._cut(now)

    def resume(self, now: float) -> None:
        """A probe was served: any pause ends."""
        self._paused_until = now
        self._starting = True

    def _cut(self, now: float) -> None:
        self._starting = False
        self._allowed = max(1.0, self._allowed / 2)
        self._cut_at = now

    def _hear(self, sent: SentRequest, now: float, headers: Mapping[str, str]) -> None:
        for window, use, kind in ((self.requests, sent.request, "requests"), (self.tokens, sent.tokens, "tokens")):
            limit, remaining = (_number(headers.get(f"x-ratelimit-{what}-{kind}")) for what in ("limit", "remaining"))
            window.heard(now, use, limit, remaining)


class SharedLimiter:
    """One limiter shared by threads, which wait for their turn: runs go round, first come first served within a run."""

    def __init__(self, limiter: RateLimiter, clock: Callable[[], float] = time.monotonic) -> None:
        self._limiter, self._clock = limiter, clock
        self._lock = threading.Lock()
        self._turns = FairQueue[threading.Condition]()

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._turns)

    def enter(self, tokens: float, check: Callable[[], object]) -> SentRequest:
        """Wait for a turn. Raises whatever `check` raises, which is called about once a second."""
        # Each thread has a condition of its own, on the one lock. Only the thread whose turn it is looks at the limiter
        # and is woken by a change: with one condition, each answer would wake all the hundreds that may wait.
        me, run = threading.Condition(self._lock), current_asker()
        with self._lock:
            self._turns.add(run, me)
            try:
                while (wait := self._wait(me, tokens)) > 0:
                    me.wait(wait)
                    check()
            except BaseException:
                self._turns.drop(run, me)
                self._wake()
                raise
            self._turns.take()
            sent = self._limiter.start(self._clock(), tokens)
            self._wake()
            return sent

    def leave(self, tell: Callable[[RateLimiter, float], None]) -> None:
        with self._lock:
            tell(self._limiter, self._clock())
            self._wake()

    def _wake(self) -> None:
        if (first := self._turns.first()) is not None:
            first.notify()

    def _wait(self, me: threading.Condition, tokens: float) -> float:
        if self._turns.first() is not me:
            return _LOOK
        delay = self._limiter.delay(self._clock(), tokens)
        return _LOOK if delay is None else min(delay, _LOOK)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait; None where it says nothing, or a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    seconds = _number(headers.get("retry-after")) if milliseconds is None else milliseconds / 1000
    return seconds if seconds is not None and seconds >= 0 else None


def parse_duration(duration: str) -> float | None:
    """`6m0s`, `1s`, `20ms`, `1.5` in seconds; None for anything else."""
    if (plain := _number(duration)) is not None:
        return plain
    found = _DURATION.fullmatch(duration.strip())
    if found is None or not any(found.groups()):
        return None
    return sum(float(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1, 0.001), strict=True))


def _reset(headers: Mapping[str, str]) -> float | None:
    """Seconds until the used-up limit comes back, at most a minute; None if no header says."""
    waits = []
    for kind in ("requests", "tokens"):
        wait = parse_duration(headers.get(f"x-ratelimit-reset-{kind}", ""))
        if wait is not None and _number(headers.get(f"x-ratelimit-remaining-{kind}")) == 0:
            waits.append(min(wait, _LONGEST_PAUSE))
    return max(waits) if waits else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


_FIRST_REST = 1.0
LONGEST_REST = 60.0
"""Seconds that an open breaker rests before a trial, at first and at most."""


class CircuitBreaker:
    """Whether one server is away; thread-safe.

        breaker.check()                    # raises `JudgeUnavailable` while open, lets one trial pass when half-open
        breaker.opened("connection refused")

    It opens when one call failed in all its retries, or at once where retrying is no use (a bad key, no quota).
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._lock = threading.Lock()
        self._rest = _FIRST_REST
        self._until = 0.0
        self._since: datetime | None = None
        self._reason = ""

    @property
    def away(self) -> bool:
        return self._since is not None

    @property
    def away_since(self) -> datetime | None:
        return self._since

    def check(self) -> bool:
        """Whether this is a trial. Raises `JudgeUnavailable` where the server is away and no trial is due."""
        with self._lock:
            if self._since is None:
                return False
            if self._clock() < self._until:
                raise JudgeUnavailable(self._sentence())
            self._until = self._clock() + self._rest  # the others wait while this one tries
            return True

    def opened(self, reason: str, trial: bool = False) -> JudgeUnavailable:
        """Note that the server is away. Returns the error to raise. A trial that fails doubles the rest."""
        with self._lock:
            if self._since is None:
                self._since, self._rest = datetime.now(UTC), _FIRST_REST
                self._until = self._clock() + self._rest
            elif trial:  # stragglers of the first failure do not lengthen the rest
                self._rest = min(2 * self._rest, LONGEST_REST)
                self._until = self._clock() + self._rest
            self._reason = reason
            return JudgeUnavailable(self._sentence())

    def closed(self) -> None:
        with self._lock:
            self._since = None

    def _sentence(self) -> str:
        since = "" if self._since is None else f" (away since {self._since:%H:%M:%S} UTC)"
        return f"{self._name} {self._reason}{since}."
