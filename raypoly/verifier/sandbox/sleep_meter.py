"""How long a process sleeps: the wall time that neither its CPU time nor the scheduler's waiting times explain.

A process that waits for a core does not sleep, whatever the load. Linux counts that wait for each thread
(`/proc/PID/task/TID/schedstat`: nanoseconds run, nanoseconds waited, turns on a core), but books it when the thread
gets its core. So the meter also asks which threads want one. A thread that wants a core at two looks, and has not given
one up between them (`voluntary_ctxt_switches`), has not slept: none of that time is sleep, though a host that lends its
cores to others may have taken some. What is charged at a look where some thread wants a core is not counted before the
wait is booked, which may take it back. Several threads may take turns, or begin and end: if some thread wants a core at
two looks, no time between them was sleep. A look that the child's own bytes caused does not show that it works. Where
the kernel counts no waits, a process sleeps while all its threads do.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.05
"""Unexplained time after which the scheduler is asked how long the child waited. Its numbers are sums, so that nothing
is lost between looks; most programs end before the first."""
_SLEEPING = ("S", "T", "t", "Z", "X")


@dataclass(frozen=True)
class _Thread:
    wants_core: bool
    waited: float
    """Seconds for which it has waited for a core, as far as the kernel has booked them."""
    turns: int
    """How often it has got a core."""
    sleeps: int
    """How often it has given one up."""


class SleepMeter:
    """Charges the time that `watch` leaves unexplained."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._unexplained = 0.0
        self._threads: dict[str, _Thread] = {}
        self._wanted = False
        """Whether some thread wanted a core at the last look, at a moment that the child had not chosen."""
        self._own = 0.0
        """What this thread had waited, and this process used, when the time began."""
        self._open = 0.0
        """What the last look charged while some thread wanted a core: the booking of its wait may take it back."""
        self._ahead = 0.0
        """Seconds already credited of a wait that is not booked yet."""
        self.slept = 0.0
        """Seconds of sleep so far."""

    def start(self) -> None:
        """The time begins that the next `watch` accounts for. After a `watch`, the next one's has begun."""
        self._own = _own_seconds()

    def watch(self, wall: float, cpu: float, late: float, arrived: bool, waits: bool) -> None:
        """Account for `wall` seconds in which the process used `cpu` seconds.

        `late`: how much later we looked than we meant to; nobody knows what the process did then. `arrived`: the time
        ended with bytes of its; `waits`: behind which it may have waited for us.
        """
        before = self._own
        self.start()
        gap = wall - cpu
        if gap > 0:
            gap = max(0.0, gap - late - (self._own - before if waits else 0.0))
        # the kernel books CPU time by ticks, so that it comes late, and then all at once
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
        """Seconds since the last look that were no sleep. What it charged is settled once the wait for it is booked."""
        earlier, self._wanted = self._wanted, wanted
        awake = _never_slept(before, now)
        if awake is not None:
            waits_on = before[awake].turns == now[awake].turns
            self._ahead = self._unexplained + (self._ahead if waits_on else 0.0)
            return self._unexplained
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
    """A thread that wants a core, as it did before, and has given none up since; None if there is none."""
    for name, thread in now.items():
        earlier = before.get(name)
        if earlier and thread.wants_core and earlier.wants_core and earlier.sleeps == thread.sleeps:
            return name
    return None


def _longest_wait(before: dict[str, _Thread], now: dict[str, _Thread]) -> float:
    """Seconds that the thread which waited longest has waited since: several wait at the same time."""
    waits = (thread.waited - (before[name].waited if name in before else 0.0) for name, thread in now.items())
    return max(waits, default=0.0)


def _threads(pid: int) -> dict[str, _Thread]:
    """The threads of a process that live."""
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
    """Seconds for which this thread has waited for a core, and for which this process has used one."""
    waited = 0
    if _COUNTED:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)  # a third of the time that `Path` takes
        try:
            waited = int(os.read(file, 100).split()[1])
        finally:
            os.close(file)
    return waited / 1e9 + time.process_time()


def _is_counted() -> bool:
    """Whether this kernel counts how long threads wait (CONFIG_SCHED_INFO). Where it doesn't, it says 0 0 0."""
    try:
        return any(int(count) for count in Path("/proc/self/schedstat").read_text().split())
    except FileNotFoundError:
        return False


_COUNTED = _is_counted()
