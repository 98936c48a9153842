"""A fixed number of threads that work for several askers in turn, however much work each of them submits.

    threads = FairThreads(128)
    future = threads.submit("run-a", lambda: judge.label(problem, rollouts, verdicts))

If one asker fills all threads, another one waits for the first free thread, not for the whole queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from raypoly.judge.fair_queue import FairQueue


class FairThreads:
    """Work waits in one queue per asker; a free thread takes from each queue in turn."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count)
        self._lock = threading.Lock()
        self._turns = FairQueue[tuple[Future[Any], Callable[[], Any]]]()

    def submit(self, asker: str, work: Callable[[], Any]) -> Future[Any]:
        """The future of what `work` returns or raises."""
        future: Future[Any] = Future()
        with self._lock:
            self._turns.add(asker, (future, work))
        self._pool.submit(self._next)
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
