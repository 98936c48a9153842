"""Three ways in which servers enforce requests and tokens per minute.

    limits = Enforcement("bucket", requests=500, tokens=200_000)
    limits.admit(now, tokens=1800)      # False: answer 429
    limits.headers(now)                 # {"x-ratelimit-limit-requests": "500", ...}

`fixed`: so much in each minute of the clock. `sliding`: so much in any 60 seconds. `bucket`: a minute's worth that
refills all the time. `smooth`: the bucket, and never more than a second ahead of it, as OpenAI does to bursts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

KINDS = ("fixed", "sliding", "bucket", "smooth")
_PHASE = 17.0
"""Seconds by which fixed minutes are off the first request, so that they begin in the middle of things."""


@dataclass
class Enforcement:
    """The limits of one key and what was used of them; any clock in seconds."""

    kind: str
    requests: int
    tokens: int
    tells: bool = True
    """Whether headers say the limits and what is left."""
    _uses: deque[tuple[float, int]] = field(default_factory=deque)
    _spent: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _burst: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """What has not refilled yet; not emptied by the clock's minute."""
    _minute: int = -1
    _at: float = 0.0

    def admit(self, now: float, tokens: int) -> bool:
        """Whether one request of so many tokens is served; counts it if so."""
        left = self.left(now)
        if left[0] < 1 or left[1] < tokens or (self.kind == "smooth" and self._too_fast()):
            return False
        self._spent = [self._spent[0] + 1, self._spent[1] + tokens]
        self._burst = [self._burst[0] + 1, self._burst[1] + tokens]
        self._uses.append((now, tokens))
        return True

    def left(self, now: float) -> tuple[float, float]:
        """Requests and tokens that are left."""
        if self.kind == "sliding":
            while self._uses and self._uses[0][0] <= now - 60:
                self._spend(-1, -self._uses.popleft()[1])
        elif self.kind == "fixed":
            if (minute := int((now + _PHASE) // 60)) != self._minute:
                self._minute, self._spent = minute, [0.0, 0.0]
        else:
            refilled = (now - self._at) / 60
            self._spend(-refilled * self.requests, -refilled * self.tokens)
        self._at = now
        return self.requests - self._spent[0], self.tokens - self._spent[1]

    def headers(self, now: float) -> dict[str, str]:
        """What a server says about its limits with each answer; nothing where it does not tell."""
        if not self.tells:
            return {}
        found = {}
        for kind, limit, left in zip(("requests", "tokens"), (self.requests, self.tokens), self.left(now), strict=True):
            found |= {f"x-ratelimit-limit-{kind}": str(limit), f"x-ratelimit-remaining-{kind}": str(int(left))}
        return found

    def _spend(self, requests: float, tokens: float) -> None:
        for counts in (self._spent, self._burst):
            counts[:] = max(0.0, counts[0] + requests), max(0.0, counts[1] + tokens)

    def _too_fast(self) -> bool:
        """Whether the requests so far are a second's worth ahead of what has refilled."""
        return self._burst[0] > self.requests / 60 or self._burst[1] > self.tokens / 60
