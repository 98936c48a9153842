"""A circuit breaker: while a server is away one trial at a time asks it, however many threads there are.

    breaker.check()                    # raises `JudgeUnavailable` while open, lets one trial pass when half-open
    breaker.opened("connection refused")
    breaker.closed()

It opens when one call failed in all its retries, or at once where retrying is no use (a bad
key, no quota). A trial that fails opens it for twice as long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from raypoly.errors import JudgeUnavailable

_FIRST_REST = 1.0
LONGEST_REST = 60.0
"""Seconds that an open breaker rests before a trial, at first and at most."""


class CircuitBreaker:
    """The state of one server; threads may share it."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._lock = threading.Lock()
        self._rest = _FIRST_REST
        self._until = 0.0
        self._since: datetime | None = None
        self._reason = ""

    @property
    def away(self) -> bool:
        """Whether the server was away when it was last asked."""
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
        """The server is away; returns what to raise."""
        with self._lock:
            if self._since is None:
                self._since, self._rest = datetime.now(UTC), _FIRST_REST
                self._until = self._clock() + self._rest
            elif trial:
                self._rest = min(2 * self._rest, LONGEST_REST)
                self._until = self._clock() + self._rest
            self._reason = reason
            return JudgeUnavailable(self._sentence())

    def closed(self) -> None:
        """The server answered."""
        with self._lock:
            self._since = None

    def _sentence(self) -> str:
        since = "" if self._since is None else f" (away since {self._since:%H:%M:%S} UTC)"
        return f"{self._name} {self._reason}{since}."
