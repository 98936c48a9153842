"""Who is next: one after the other of those who wait, and first come, first served for each.

    turns = Turns[Waiter]()
    turns.add("run-a", waiter)
    turns.first()                     # whose turn it is; None where nobody waits
    turns.take()                      # the same, who then waits no more; its run is last from now on

A run with a hundred groups gets one turn, then every other run gets one. Not for threads: the owner has the lock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue that is fair to those who ask, however much each of them asks for."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def add(self, asker: str, item: T) -> None:
        """`item` waits behind all of its asker's."""
        self._queues.setdefault(asker, deque()).append(item)

    def first(self) -> T | None:
        for queue in self._queues.values():
            return queue[0]
        return None

    def take(self) -> T | None:
        """The first one, which leaves; its asker is served last from now on."""
        for asker, queue in self._queues.items():
            item = queue.popleft()
            self._queues.move_to_end(asker)
            if not queue:
                del self._queues[asker]
            return item
        return None

    def drop(self, asker: str, item: T) -> None:
        """`item` waits no more; its asker's place among the others stays."""
        queue = self._queues[asker]
        queue.remove(item)
        if not queue:
            del self._queues[asker]
