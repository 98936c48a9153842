"""A fixed number of threads that work for several askers in turn, however much each of them asks for.

    threads = FairThreads(128)
    future = threads.submit("run-a", lambda: judge.label(problem, rollouts, verdicts))

Whoever fills all threads makes another asker wait for the first thread that is free, and not for its whole queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from raypoly.judge.fair_queue import FairQueue


class FairThreads:
    """Work waits by asker; a free thread takes from each of them in turn."""

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
        except BaseException as error:  # noqa: BLE001 - it is the asker's, who waits for it
            future.set_exception(error)
