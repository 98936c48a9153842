"""How long a process sleeps: wall time that neither its CPU time nor its waits for a core explain.

Linux counts waits by thread (`/proc/PID/task/TID/schedstat`: nanoseconds run, nanoseconds waited, turns on a core), but
books a wait when the thread gets its core. So the meter also asks which threads want one:

- A thread that wants a core at two looks, and gave none up between (`voluntary_ctxt_switches`), has not slept.
- Several threads may take turns: if some thread wants a core at two looks, no time between was sleep.
- A look caused by the child's own bytes does not show that it works.
- What a look charges while a thread wants a core stays open: the booking of the wait may take it back.

Where the kernel counts no waits, a process sleeps while all its threads do.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

# unexplained seconds after which the scheduler is asked. Its numbers are sums, so nothing is lost between looks; most
# programs end before the first.
_LOOK_SECONDS = 0.05
_SLEEPING = ("S", "T", "t", "Z", "X")


@dataclass(frozen=True)
class _Thread:
    wants_core: bool
    waited: float
    """Seconds waited for a core, as far as booked."""
    turns: int
    """How often it got a core."""
    sleeps: int
    """How often it gave one up."""


class SleepMeter:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._unexplained = 0.0
        self._threads: dict[str, _Thread] = {}
        # whether a thread wanted a core at the last look, at a moment not chosen by the child
        self._wanted = False
        # this thread's wait and this process's CPU time when the interval began
        self._own = 0.0
        # charged while a thread wanted a core; may be taken back
        self._open = 0.0
        # seconds credited of a wait that is not booked yet
        self._ahead = 0.0
        self.slept = 0.0
        """Seconds of sleep so far."""

    def start(self) -> None:
        """Begin the interval of the next `watch`. After a `watch`, the next one's has begun."""
        self._own = _own_seconds()

    def watch(self, wall: float, cpu: float, late: float, arrived: bool, waits: bool) -> None:
        """Account for `wall` seconds in which the process used `cpu` seconds.

        `late`: how much later than meant we looked. `arrived`: the child's bytes ended the interval; `waits`: behind
        them it may have waited for us.
        """
        before = self._own
        self.start()
        gap = wall - cpu
        if gap > 0:
            gap = max(0.0, gap - late - (self._own - before if waits else 0.0))
        # the kernel books CPU time by ticks, so that it comes late, and then all at once
        # so the sum may go below zero, but not by more than one tick may explain
        self._unexplained = max(-_LOOK_SECONDS, self._unexplained + gap)
        if self._unexplained > _LOOK_SECONDS:
            self._look(arrived)

    def _look(self, arrived: bool) -> None:
        before, now = self._threads, _threads(self._pid)
        wants = any(thread.wants_core for thread in now.values())
        charge = max(0.0, self._unexplained - self._credit(before, now, wants and not arrived))
        self._open += charge if _COUNTED or not wants else 0.0
        if not wants:
            self._settle()
        self._threads, self._unexplained = now, 0.0

    def _credit(self, before: dict[str, _Thread], now: dict[str, _Thread], wanted: bool) -> float:
        earlier, self._wanted = self._wanted, wanted
        # one thread that never gave up its core is enough: the process did not sleep at all in this time
        awake = _never_slept(before, now)
        if awake is not None:
            waits_on = before[awake].turns == now[awake].turns
            self._ahead = self._unexplained + (self._ahead if waits_on else 0.0)
            return self._unexplained
        # with one thread, what was credited ahead of the booking is part of what is booked now
        alone = len(before) < 2 and len(now) < 2
        booked = _longest_wait(before, now)
        if alone:
            booked = max(0.0, booked - self._ahead)
        self._ahead = 0.0
        self._open -= min(self._open, max(0.0, booked - self._unexplained))  # more than this interval: it began before
        self._settle()
        return self._unexplained if earlier and wanted and not alone else booked

    def _settle(self) -> None:
        self.slept, self._open = self.slept + self._open, 0.0


def _never_slept(before: dict[str, _Thread], now: dict[str, _Thread]) -> str | None:
    # A thread that wanted a core then and now, and gave none up since; None if there is none
    for name, thread in now.items():
        earlier = before.get(name)
        if earlier and thread.wants_core and earlier.wants_core and earlier.sleeps == thread.sleeps:
            return name
    return None


def _longest_wait(before: dict[str, _Thread], now: dict[str, _Thread]) -> float:
    # several threads wait at the same time: the longest counts
    waits = (thread.waited - (before[name].waited if name in before else 0.0) for name, thread in now.items())
    return max(waits, default=0.0)


def _threads(pid: int) -> dict[str, _Thread]:
    found = {}
    folder = Path(f"/proc/{pid}/task")
    with contextlib.suppress(OSError):  # all have ended
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # this one has
                _, waited, turns = (folder / name / "schedstat").read_text().split() if _COUNTED else (0, 0, 0)
                state = (folder / name / "stat").read_text().rpartition(")")[2].split()[0]
                status = (folder / name / "status").read_text()
                sleeps = int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
                found[name] = _Thread(state not in _SLEEPING, int(waited) / 1e9, int(turns), sleeps)
    return found


def _own_seconds() -> float:
    """Seconds that this thread waited for a core, plus this process's CPU time."""
    waited = 0
    if _COUNTED:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)  # a third of the time that `Path` takes
        try:
            waited = int(os.read(file, 100).split()[1])
        finally:
            os.close(file)
    return waited / 1e9 + time.process_time()


def _is_counted() -> bool:
    # without CONFIG_SCHED_INFO the kernel says 0 0 0
    try:
        return any(int(count) for count in Path("/proc/self/schedstat").read_text().split())
    except FileNotFoundError:
        return False


_COUNTED = _is_counted()
