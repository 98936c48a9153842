"""One rate limit of a server, as the sum of uses in the last minute.

    window = RateWindow(cap=500)
    window.delay(now, 1) -> 0.0          # seconds until this amount may be used
    use = window.use(now, 1)
    window.heard(limit=500, remaining=311, before=use, now=now)

A sum over a sliding minute is within every usual kind of limit: fixed windows, sliding ones, and buckets that refill.
Requests that had to wait are spread evenly, and steady use reaches 98 % of the limit. The caller passes the time, in
seconds of any clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

HOLD, _LONGEST_HOLD = 60.5, 61.5
"""Seconds for which a use counts: a minute and the delay on the wire; more after refusals."""
_NEARLY = 0.9  # share of a known limit: a refusal above it is due to the minute's sum, else to a burst
_MARGIN = 0.01  # unused share of the limit
_NOTICEABLE = 0.03  # share of the limit by which a server's count above ours shows that others use the key
_GUESSED = 0.97
_ENOUGH = 5  # the fewest uses in the last minute from which a limit is guessed
# Refusals within this many seconds add up; each counts for this many seconds of the minute.
_STREAK, _SEEN = 120.0, 10.0
_SURE = 3
# Seconds that a late request may catch up on an even spread: at first, and after refusals.
_LAG, _SHORTEST_LAG = 0.5, 0.25
_LONG, _CATCH_UP = 5.0, 10.0  # after a longer wait for room in the minute, only so many seconds are caught up
# Seconds without bursts after a refused burst, doubled each time; and after another refusal.
_EVENLY, _BRIEFLY = 600.0, 60.0


@dataclass
class RateUse:
    """A use, and the rest of the limit after it (None if unknown)."""

    at: float
    amount: float
    left: float | None


class RateWindow:
    """Uses of the last minute, against the lower of our cap and the server's limit."""

    def __init__(self, cap: float | None, guesses: bool = False, margin: float = _MARGIN) -> None:
        """`guesses`: whether refusals by a server that states no limit count for this kind."""
        self._cap, self._guesses, self._margin = cap, guesses, margin
        self._told: float | None = None
        self._guess: float | None = None
        self._growth, self._grows_at = 0.0, 0.0
        self._strikes, self._struck_at = 0, float("-inf")
        self._uses: deque[RateUse] = deque()
        self._sum = 0.0
        self._next = float("-inf")
        self._full_since: float | None = None
        self._hold = HOLD
        self._even_until, self._evenly = float("-inf"), _EVENLY
        self._lag = _LAG

    @property
    def limit(self) -> float | None:
        """Units a minute; None if neither stated nor guessed."""
        known = [limit for limit in (self._cap, self._told) if limit is not None]
        return min(known) if known else self._guess

    @property
    def known(self) -> bool:
        return self._cap is not None or self._told is not None

    def delay(self, now: float, amount: float) -> float:
        """Seconds until `amount` may be used."""
        self._forget(now)
        self._grow(now)
        limit = self._usable()
        if limit is None:
            return 0.0
        pause = 0.0
        # Wait until the oldest uses that are in the way have left the minute. What is larger than the whole limit waits
        # until none is left, and then goes alone.
        over = self._sum + amount - limit
        for use in self._uses:
            if over <= 0:
                break
            over -= use.amount
            pause = max(pause, use.at + self._hold - now)
        if pause > 0 and self._full_since is None:
            self._full_since = now
        return max(pause, self._next - now)

    def use(self, now: float, amount: float) -> RateUse:
        self._sum += amount
        limit = self.limit
        if limit is not None:
            # `_next` is when an even spread allows the next use; falling behind it earns a credit, which is a burst. A
            # long wait for a full minute earns little: a burst now would fill the next minute as fast.
            waited = 0.0 if self._full_since is None else now - self._full_since
            credit = self._lag if now < self._even_until else _CATCH_UP if waited > _LONG else HOLD
            self._next = max(self._next, now - credit) + self._stretch(amount)
            self._full_since = None
        use = RateUse(now, amount, self._left())
        self._uses.append(use)
        return use

    def correct(self, use: RateUse, amount: float) -> None:
        if self._uses and use.at >= self._uses[0].at:
            self._sum += amount - use.amount
            self._next += self._stretch(amount) - self._stretch(use.amount)
        use.amount = amount

    def heard(self, now: float, before: RateUse, limit: float | None, remaining: float | None) -> None:
        """Record the server's limit in units a minute, and the rest of it, from one answer."""
        self._forget(now)
        if limit is None or limit <= 0:
            return
        self._told = limit
        left = self._left()
        if remaining is None or not 0 <= remaining <= limit or left is None:
            return
        # Some servers tell the rest as of when the request came in, others as of their answer: it is compared with the
        # smaller of ours at both moments. What is missing, somebody else used with the same key.
        expected = left if before.left is None else min(left, before.left)
        others = expected - remaining
        if self.limit == self._told and others > max(_NOTICEABLE * limit, before.amount):
            self._sum += others
            self._uses.append(RateUse(now, others, None))

    def nearly_used(self, now: float) -> bool:
        """Whether the minute's sum may explain a refusal: a request was late, or others use the key."""
        self._forget(now)
        limit = self.limit
        return self.known and limit is not None and self._sum >= _NEARLY * limit

    def refused(self, now: float, burst: bool, often: bool) -> None:
        """Handle an answer 429: no bursts for a while, or a guess of a limit that is not stated.

        `often`: whether refusals are too many for a server that is only overloaded at times.
        """
        self._forget(now)
        if self.known and not burst:
            self._hold = min(_LONGEST_HOLD, self._hold + 0.25)
            self._even_until, self._next = max(self._even_until, now + _BRIEFLY), max(self._next, now)
        elif self.known or self._strikes >= _SURE:
            self._go_evenly(now)
        if often and not self.known and self._guesses and self._sum >= _ENOUGH:
            # one refusal after a short burst says little; several in a row mean that the minute's limit is reached
            self._strikes = self._strikes + 1 if now < self._struck_at + _STREAK else 1
            self._struck_at = now
            seen = min(HOLD, max(now - self._uses[0].at, _SEEN * self._strikes))
            self._guess = _GUESSED * self._sum * HOLD / seen
            self._growth, self._grows_at = 0.02, now + 20

    def _stretch(self, amount: float) -> float:
        # Seconds from a use of this amount to the next in an even spread.
        limit = self._usable()
        return 0.0 if limit is None else self._hold * min(1.0, amount / max(limit, 1.0))

    def _go_evenly(self, now: float) -> None:
        if now < self._even_until:
            self._lag = max(_SHORTEST_LAG, self._lag / 2)
        elif self._even_until > float("-inf"):
            self._evenly *= 2
        self._even_until = now + self._evenly
        self._next = max(self._next, now)

    def _usable(self) -> float | None:
        limit = self.limit
        return None if limit is None else limit - int(self._margin * limit)

    def _left(self) -> float | None:
        limit = self.limit
        return None if limit is None else limit - self._sum

    def _grow(self, now: float) -> None:
        while self._guess is not None and now >= self._grows_at:
            self._guess *= 1 + self._growth
            self._growth = min(1.0, 2 * self._growth)
            self._grows_at += 20
            if self._guess > 1e7:
                self._guess = None

    def _forget(self, now: float) -> None:
        while self._uses and self._uses[0].at + self._hold <= now:
            self._sum -= self._uses.popleft().amount
        if not self._uses:
            self._sum = 0.0
