"""Where threads wait for their turn to ask, as the limiter allows: runs in turn, and first come first in a run.

sent = gate.enter(tokens=2400, check=breaker.check)
...                                  # the call
gate.leave(lambda limiter, now: limiter.answered(sent, now, 2311, headers))

Who asks is known from `raypoly.judge.asker`. Only the thread whose turn it is looks at the limiter, and only it is
woken when something changed: hundreds may wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from raypoly.judge.asker import asker
from raypoly.judge.fair_queue import FairQueue
from raypoly.judge.openai.rate_limiter import Limiter, Sent

_LOOK = 1.0
"""Seconds after which whoever waits looks whether waiting still makes sense."""


class RequestGate:
    """One limiter shared by threads. Waiting is fair: a run that asks for a hundred groups is served no sooner."""

    def __init__(self, limiter: Limiter, clock: Callable[[], float] = time.monotonic) -> None:
        self._limiter, self._clock = limiter, clock
        self._lock = threading.Lock()
        self._turns = FairQueue[threading.Condition]()

    @property
    def waiting(self) -> int:
        """Threads that wait for a turn."""
        with self._lock:
            return len(self._turns)

    def enter(self, tokens: float, check: Callable[[], object]) -> Sent:
        """Wait for a turn. Raises whatever `check` raises, which is called about once a second."""
        me, run = threading.Condition(self._lock), asker()
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

    def leave(self, tell: Callable[[Limiter, float], None]) -> None:
        """Tell the limiter how a call ended, and wake who is next."""
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
