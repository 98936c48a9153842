"""The actor's side of the watchdog: a pulse that changes with its work (a heartbeat), and its Python stacks.

    class Worker(Watched): ...                                 # self.beat() whenever something is done
    actor = ray.remote(**WATCHED)(Worker).remote()
    actor.pulse.remote(), actor.stacks.remote()                # answered while a call of the actor hangs

A thread of their own answers both. Where that thread can't run, because C code holds the interpreter, the signal
`_SIGNAL` makes the process write its stacks into a file in memory, which `signalled_stacks` reads through /proc.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

GROUP = "watch"
WATCHED: dict[str, Any] = {"concurrency_groups": {GROUP: 1}}
"""Options of `ray.remote` for a `Watched` class whose methods are no coroutines."""
_SIGNAL = signal.SIGUSR1
_SIGNAL_SECONDS = 5.0


def of_run(actor: str) -> str:
    """An actor's `repr`, which Ray's logs and dashboard show: with the name of the run that it works for."""
    return f"{actor} of {ray.get_runtime_context().namespace}"


@dataclass(frozen=True)
class Pulse:
    beats: int
    """Grow with the actor's work."""
    pid: int
    node: str
    descriptor: int
    """Of the file in memory that the signal fills."""


class Watched:
    """Base class of actors that report progress. Needs no call of `__init__`."""

    _beats = 0
    _descriptor = -1

    def beat(self, count: int = 1) -> None:
        self._beats += count

    @ray.method(concurrency_group=GROUP)  # type: ignore[untyped-decorator]
    def pulse(self) -> Pulse:
        return self._pulse()

    @ray.method(concurrency_group=GROUP)  # type: ignore[untyped-decorator]
    def stacks(self) -> str:
        return all_stacks()

    def _pulse(self) -> Pulse:
        if self._descriptor < 0:
            self._descriptor = os.memfd_create("raypoly-stacks")
            faulthandler.register(_SIGNAL, file=self._descriptor, all_threads=True)
        return Pulse(self._beats, os.getpid(), ray.get_runtime_context().get_node_id(), self._descriptor)


def all_stacks() -> str:
    """Python stacks of this process's threads."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    out = io.StringIO()
    for ident, frame in sys._current_frames().items():
        out.write(f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}\n")
    return out.getvalue()


def signalled_stacks(pid: int, descriptor: int) -> str:
    """Stacks that a process of this machine writes on `_SIGNAL`; empty where it is stopped."""
    path = Path(f"/proc/{pid}/fd/{descriptor}")
    try:
        before = path.stat().st_size
        os.kill(pid, _SIGNAL)
        until = time.monotonic() + _SIGNAL_SECONDS
        while path.stat().st_size == before and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)  # the rest of what it writes
        return path.read_bytes()[before:].decode(errors="replace")
    except OSError as error:
        return f"(process {pid}: {error.strerror})\n"
