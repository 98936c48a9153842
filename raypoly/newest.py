"""What was used last, within bounds of number and size.

suites = Newest[str, TestSuite](count=256, size=1 << 20)
suites.put("key", suite, len(suite.source))
suites.get("key")                               # None where it is not there, or was too long ago
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Newest(Generic[K, T]):
    """Values by key; the newest one is always there, however large it is."""

    def __init__(self, count: int, size: int) -> None:
        """At most so many, of so much in all; in what unit `put` says."""
        self._count, self._size = count, size
        self._held: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._sum = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> T | None:
        if key not in self._held:
            return None
        self._held.move_to_end(key)
        return self._held[key][0]

    def put(self, key: K, value: T, size: int) -> T:
        self._sum += size - self._held.pop(key, (value, 0))[1]
        self._held[key] = (value, size)
        while len(self._held) > self._count or (self._sum > self._size and len(self._held) > 1):
            _, (_, gone) = self._held.popitem(last=False)
            self._sum -= gone
        return value
