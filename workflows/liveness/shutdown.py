"""How a run ends before its work is done: by a signal, by the watchdog, or because Ray is gone.

    ending = Ending(grace_seconds)
    with on_signals(ending):
        asyncio.run(work())             # in it: `with ending.guard(): ...`

SIGTERM (a spot node that goes, `ray job stop`) and the first Ctrl-C cancel the work, so that everything on the way out
still happens: what is being committed is finished first. Whoever asks for the end, it comes in bounded time: what hangs
is left behind. The second Ctrl-C leaves at once.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from raypoly.errors import RaypolyError, RunStopped
from workflows.startup.ray_cluster import kill_local_ray

AFTER_ERROR_SECONDS = 30.0
"""For the way out where something hangs or is gone."""
RESERVED_SECONDS = 10.0
"""Of the time of grace, for ending actors and Ray."""


class Shutdown:
    """Why the run has to end; the first reason counts."""

    def __init__(self, grace: float | None = None) -> None:
        """`grace`: seconds after which this whole process ends, whatever hangs; None where it is not the run's own."""
        self.reason: RaypolyError | None = None
        self._grace = grace
        self._until = float("inf")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._over = threading.Event()

    @property
    def seconds_left(self) -> float:
        """For whatever would be good to do still, such as a checkpoint; 0 where something is broken."""
        if not isinstance(self.reason, RunStopped) or self._grace is None:
            return 0.0
        return max(0.0, self._until - time.monotonic() - RESERVED_SECONDS)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Inside, this task is cancelled where the end is asked for; the reason is raised on the way out."""
        if self.reason is not None:
            raise self.reason
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            yield
        except (asyncio.CancelledError, Exception) as error:
            if self.reason is None or error is self.reason:
                raise
            raise self.reason from error
        finally:
            self._task = None
            self._over.set()

    def request(self, reason: RaypolyError) -> None:
        """End the run for this reason; from any thread, or a signal's handler."""
        if self.reason is not None:
            return
        self.reason = reason
        if self._grace is not None:
            within = self._grace if isinstance(reason, RunStopped) else AFTER_ERROR_SECONDS
            self._until = time.monotonic() + within
            threading.Thread(target=self._force, args=(within,), name="force", daemon=True).start()
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def end_without_ray(
        self, reason: RaypolyError, flushed: Callable[[], Coroutine[Any, Any, None]], release: Callable[[], None]
    ) -> None:
        """Ray has died, and would end this process at its next word to it: commit, say so, and end it here."""
        if self._grace is None or self._loop is None:
            self.request(reason)
            return
        print(f"\n{reason}", file=sys.stderr, flush=True)  # at once: there may be no time for more
        with suppress(TimeoutError, RaypolyError):
            asyncio.run_coroutine_threadsafe(flushed(), self._loop).result(RESERVED_SECONDS)
            release()
        exit_process(None)

    @property
    def is_guarding(self) -> bool:
        return self._task is not None

    def _force(self, within: float) -> None:
        if not self._over.wait(within):
            exit_process(self.reason)
        # what follows is the end of the process; a thread that hangs in the storage can't be waited for
        time.sleep(AFTER_ERROR_SECONDS)
        exit_process(self.reason)


def exit_process(reason: RaypolyError | None) -> None:
    """Say why, end Ray's processes where they are this driver's own, and end this process, whatever it is doing."""
    if reason is not None:
        print(f"\n{reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    kill_local_ray()
    os._exit(1 if reason is None else reason.exit_code)


@contextmanager
def stop_on_signals(ending: Shutdown) -> Iterator[None]:
    """Within the block, in the main thread: signals ask for the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stopped = RunStopped(f"Stopped; everything is committed. Resume with: {this_command()}")
        if number == signal.SIGINT:
            stopped.exit_code = 128 + number
        if ending.reason is not None:
            if number == signal.SIGINT:
                exit_process(stopped)
            return
        if number == signal.SIGINT:
            print("\nStopping: what is under way is committed; press Ctrl-C again to stop now.", file=sys.stderr)
        if ending.is_guarding:
            ending.request(stopped)
        else:  # nothing is up yet
            raise stopped

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def this_command() -> str:
    """The command that this process was started with."""
    return shlex.join(["python", *sys.orig_argv[1:]])


def run_workflow(work: Coroutine[Any, Any, None], ending: Shutdown | None = None) -> None:
    """Run to the end; of a group of tasks the error that ended it is raised, the others were cancelled for it."""
    try:
        with stop_on_signals(ending or Shutdown()):
            asyncio.run(work)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from group
