"""The end of a run before its work is done: on a signal, by the watchdog, or because Ray is gone.

    shutdown = Shutdown(grace_seconds)
    with shutdown.on_signals():
        asyncio.run(work())             # inside it: `with shutdown.guard(): ...`

SIGTERM (a spot node that goes away, `ray job stop`) and the first Ctrl-C cancel the work. A commit under way is
finished first. The end comes in bounded time: work that hangs is left. The second Ctrl-C ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from actors.ray_internals import job_runtime_env, kill_own_node
from raypoly.core.errors import RaypolyError, RunStopped

_AFTER_ERROR_SECONDS = 30.0
_RESERVED_SECONDS = 10.0  # of the grace time, for ending actors and Ray
_VARIABLES = ("PYTHONPATH", "RAYPOLY_RUNS")


class Shutdown:
    """A request to end the run, and its reason. The first request counts."""

    def __init__(self, grace: float | None = None) -> None:
        """`grace`: seconds after which this whole process ends, whatever hangs; None to not end it."""
        self.reason: RaypolyError | None = None
        self._grace = grace
        self._until = float("inf")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._over = threading.Event()

    @property
    def seconds_left(self) -> float:
        """Seconds for useful work, such as a checkpoint; 0 if something is broken."""
        if not isinstance(self.reason, RunStopped) or self._grace is None:
            return 0.0
        return max(0.0, self._until - time.monotonic() - _RESERVED_SECONDS)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Inside, a request cancels this task, and its reason is raised on the way out."""
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
        """End the run for this reason. May be called from any thread or a signal handler."""
        if self.reason is not None:
            return
        self.reason = reason
        if self._grace is not None:
            within = self._grace if isinstance(reason, RunStopped) else _AFTER_ERROR_SECONDS
            self._until = time.monotonic() + within
            threading.Thread(target=self._force, args=(within,), name="force", daemon=True).start()
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Inside, SIGINT and SIGTERM request the end, if this is the main thread. Of a task group's errors the first is
        raised: it has cancelled the other tasks."""

        def handle(number: int, frame: FrameType | None) -> None:
            again = shell_command(sys.orig_argv[1:])
            stopped = RunStopped(f"Stopped; everything is committed. Resume with: {again}")
            if number == signal.SIGINT:
                stopped.exit_code = 128 + number
            if self.reason is not None:
                if number == signal.SIGINT:
                    exit_process(stopped)
                return
            if number == signal.SIGINT:
                print("\nStopping: what is under way is committed; press Ctrl-C again to stop now.", file=sys.stderr)
            if self._task is not None:
                self.request(stopped)
            else:  # nothing has started yet
                raise stopped

        signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, handle) for number in signals}
        try:
            yield
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from group
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def end_without_ray(
        self, reason: RaypolyError, flush: Callable[[], Coroutine[Any, Any, None]], release: Callable[[], None]
    ) -> None:
        """Flush, print the reason and end this process, which Ray would do at the next call to it."""
        if self._grace is None or self._loop is None:
            self.request(reason)
            return
        print(f"\n{reason}", file=sys.stderr, flush=True)  # at once: there may be no time for more
        with suppress(TimeoutError, RaypolyError):
            asyncio.run_coroutine_threadsafe(flush(), self._loop).result(_RESERVED_SECONDS)
            release()
        exit_process(None)

    def _force(self, within: float) -> None:
        if not self._over.wait(within):
            exit_process(self.reason)
        # the process ends now; a thread that hangs in the storage can't be waited for
        time.sleep(_AFTER_ERROR_SECONDS)
        exit_process(self.reason)


def exit_process(reason: RaypolyError | None) -> None:
    """Print the reason, kill a local Ray, and end this process at once."""
    if reason is not None:
        print(f"\n{reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    kill_own_node()
    os._exit(1 if reason is None else reason.exit_code)


def run_workflow(work: Coroutine[Any, Any, None], shutdown: Shutdown | None = None) -> None:
    with (shutdown or Shutdown()).on_signals():
        asyncio.run(work)


def shell_command(arguments: Sequence[str]) -> str:
    """The shell command of this Python with `arguments`, with variables that decide its modules and folder. In a Ray
    job: the command that submits another from the first one's folder."""
    job = job_runtime_env()
    if job is not None:
        folder = ["--working-dir", "."] if "working_dir" in job else []
        return shlex.join(["ray", "job", "submit", *folder, "--", "python", *arguments])
    inside = os.path.relpath(sys.executable)  # .venv/bin/python, where it lies below the working directory
    given = (f"{name}={shlex.quote(value)} " for name in _VARIABLES if (value := os.environ.get(name)))
    return "".join(given) + shlex.join([sys.executable if inside.startswith("..") else inside, *arguments])
