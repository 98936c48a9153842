"""One thread at a time for each question: who asks what is being asked already waits, and finds the answer kept.

    with flights.alone(key):
        answer = cache.get(key) or ask_and_keep(key)

A failure is nobody's but the thread's that met it: the next one asks for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class _Flight:
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: int = 0
    """Who holds the lock or waits for it."""


class InFlightQuestions:
    """Locks by key, kept while somebody needs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[str, _Flight] = {}

    @contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Inside, no other thread is inside with the same key."""
        with self._lock:
            flight = self._flights.setdefault(key, _Flight())
            flight.threads += 1
        try:
            with flight.lock:
                yield
        finally:
            with self._lock:
                flight.threads -= 1
                if not flight.threads:
                    del self._flights[key]
