"""How long a process sleeps: the wall time that neither its CPU time nor the scheduler's waiting times explain.

A process that waits for a core does not sleep, whatever the load. Linux counts that wait for each thread
(`/proc/PID/task/TID/schedstat`, the second number, nanoseconds). Where the kernel counts none, a process is believed to
sleep only while all of its threads do.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_NOTE_SECONDS, _LOOK_SECONDS = 0.01, 0.05
"""Unexplained time after which our own waits are noted, and after which the scheduler is asked what the child's were.
Its numbers are sums, so that nothing is lost between looks; most programs end before the first."""
_SLEEPING = ("S", "T", "t", "Z", "X")


class SleepMeter:
    """Charges the time that `watch` leaves unexplained."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._unexplained = 0.0
        self._late = False
        """Whether bytes came since the last look: the child may have waited for us to take them."""
        self._waits: dict[str, int] = {}
        self._own: tuple[dict[str, int], float] | None = None
        """How long this process's threads have waited, and its CPU time, at the last look."""
        self.slept = 0.0
        """Seconds of sleep so far."""

    def watch(self, wall: float, cpu: float, arrived: bool) -> None:
        """Account for `wall` seconds in which the process used `cpu` seconds; `arrived`: they ended with its bytes."""
        # the kernel books CPU time by ticks, so that it comes late, and then all at once
        self._unexplained = max(-_LOOK_SECONDS, self._unexplained + wall - cpu)
        self._late = self._late or arrived
        if self._unexplained > _NOTE_SECONDS and self._own is None:
            self._own = _waits(os.getpid()), time.process_time()
        if self._unexplained > _LOOK_SECONDS:
            self._look()

    def _look(self) -> None:
        assert self._own is not None
        waits = _waits(self._pid)
        credit = _longest_wait(self._waits, waits)
        if self._late:  # this thread may have waited for a core, or for others of its process
            own, cpu = _waits(os.getpid()), time.process_time()
            credit += _longest_wait(self._own[0], own) + cpu - self._own[1]
        if _COUNTED or _all_sleep(self._pid):
            self.slept += max(0.0, self._unexplained - credit)
        self._waits, self._own, self._unexplained, self._late = waits, None, 0.0, False


def _longest_wait(before: dict[str, int], after: dict[str, int]) -> float:
    """Seconds that the thread which waited longest has waited since: several wait at the same time."""
    return max((wait - before.get(thread, 0) for thread, wait in after.items()), default=0) / 1e9


def _waits(pid: int) -> dict[str, int]:
    """Nanoseconds that each thread of a process has waited for a core."""
    found = {}
    for thread, text in _threads(pid, "schedstat"):
        found[thread] = int(text.split()[1])
    return found


def _all_sleep(pid: int) -> bool:
    return all(text.rpartition(")")[2].split()[0] in _SLEEPING for _, text in _threads(pid, "stat"))


def _threads(pid: int, file: str) -> list[tuple[str, str]]:
    """The text of a file of each thread of a process that lives."""
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found.append((thread, Path(f"/proc/{pid}/task/{thread}/{file}").read_text()))
    except OSError:  # a thread has just ended, or all have
        return found
    return found


def _is_counted() -> bool:
    """Whether this kernel counts how long threads wait (CONFIG_SCHED_INFO)."""
    return any(int(text.split()[0]) for _, text in _threads(os.getpid(), "schedstat"))


_COUNTED = _is_counted()
