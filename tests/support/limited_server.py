"""The faulty server with enforced rate limits.

with running(LimitedServer(Enforcement("smooth", requests=1000, tokens=10**6), 0.01, 0.2)) as server:
    ...                                                    # server.log
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from tests.support.faulty_server import Server
from tests.support.rate_enforcement import Enforcement


@dataclass
class ServerLog:
    """The requests that arrived, in seconds of the machine's monotonic clock."""

    served: list[tuple[float, int]] = field(default_factory=list)
    """(seconds, tokens) of each request that was admitted."""
    refused: list[float] = field(default_factory=list)


class LimitedServer(Server):
    """Admits requests by `enforcement`, and takes between `shortest` and `longest` seconds for each."""

    def __init__(self, enforcement: Enforcement, shortest: float, longest: float) -> None:
        super().__init__()
        self.enforcement, self.log = enforcement, ServerLog()
        self._range = shortest, longest
        self._rng = random.Random(0)

    def admit(self, tokens: int) -> tuple[bool, dict[str, str]]:
        """Ask the enforcement, and return after the time that an answer takes."""
        with self._lock:
            now = time.monotonic()
            room = self.enforcement.admit(now, tokens)
            headers = self.enforcement.headers(now)
            self.bodies.clear()
            if not room:
                self.log.refused.append(now)
                return False, headers
            self.log.served.append((now, tokens))
            shortest, longest = self._range
            seconds = shortest * (longest / shortest) ** self._rng.random()  # many short answers, few long ones
        time.sleep(seconds)
        return True, headers
