"""An event loop whose seconds pass at once: where nothing but timers is left to wait for, its clock jumps to the next.

    result = run_virtual(main())

What threads do (the journal's disk) takes no time of this clock, and the clock waits for it: a result depends on no
machine's speed.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 0 s."""

    def __init__(self) -> None:
        self._now = 0.0
        self._in_threads = 0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds

    @property
    def must_wait(self) -> bool:
        """Whether a thread is at work for this loop."""
        return self._in_threads > 0

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        self._in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._back)
        return future

    def _back(self, future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1


class _Jumping(selectors.DefaultSelector):
    """Waits for files only where a thread or nothing else can wake the loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or (timeout > 0 and self._loop.must_wait):
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self._loop.jump(max(0.0, timeout))
        return ready
