"""A cache of the most recently used values, bounded by number and size.

suites = LRUCache[str, TestSuite](count=256, size=1 << 20)
suites.put("key", suite, len(suite.source))
if "key" in suites:                             # False if it was dropped
    suites["key"]
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class LRUCache(Generic[K, T]):
    """Values by key. The newest is always kept, however large."""

    def __init__(self, count: int, size: float = math.inf) -> None:
        """At most `count` values whose sizes, in the unit that `put` uses, add up to at most `size`."""
        self._count, self._size = count, size
        self._held: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._sum = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: K) -> bool:
        return key in self._held

    def __getitem__(self, key: K) -> T:
        self._held.move_to_end(key)
        return self._held[key][0]

    def put(self, key: K, value: T, size: int = 0) -> T:
        self._sum += size - self._held.pop(key, (value, 0))[1]
        self._held[key] = (value, size)
        while len(self._held) > self._count or (self._sum > self._size and len(self._held) > 1):
            _, (_, gone) = self._held.popitem(last=False)
            self._sum -= gone
        return value
