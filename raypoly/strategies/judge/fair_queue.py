"""A queue, and threads, that serve several askers in turn, however much each of them asks for.

turns = FairQueue[Waiter]()
turns.add("run-a", waiter)
turns.take()                      # the next in turn; its asker is last from now on; None for none
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come, first served for each asker, one asker after the other. Not safe for threads: its owner locks."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def add(self, asker: str, item: T) -> None:
        self._queues.setdefault(asker, deque()).append(item)

    def first(self) -> T | None:
        for queue in self._queues.values():
            return queue[0]
        return None

    def take(self) -> T | None:
        """Remove the first item. Its asker is served last from now on."""
        for asker, queue in self._queues.items():
            item = queue.popleft()
            self._queues.move_to_end(asker)
            if not queue:
                del self._queues[asker]
            return item
        return None

    def drop(self, asker: str, item: T) -> None:
        """Its asker keeps its place."""
        queue = self._queues[asker]
        queue.remove(item)
        if not queue:
            del self._queues[asker]


class FairThreads:
    """A fixed number of threads. If one asker fills them all, another waits only for the first that is free."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count)
        self._lock = threading.Lock()
        self._turns = FairQueue[tuple[Future[Any], Callable[[], Any]]]()

    def submit(self, asker: str, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._turns.add(asker, (future, work))
        self._pool.submit(self._next)  # not `work`: whose turn it is shows when a thread is free
        return future

    def _next(self) -> None:
        with self._lock:
            taken = self._turns.take()
        assert taken is not None, "one call for each work"
        future, work = taken
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the asker gets it
            future.set_exception(error)
