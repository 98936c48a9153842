"""CPU time and memory of a process and its descendants, from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from workflows.startup.ray_cluster import descendants

TICKS = os.sysconf("SC_CLK_TCK")
EVERY_SECONDS = 0.05


def family(pid: int) -> list[int]:
    """The process and its living descendants."""
    return [pid, *descendants(pid)]


def cpu_seconds(pid: int) -> float:
    """User and system seconds of the family, with its children that ended and were waited for."""
    return sum(_ticks(member) for member in family(pid)) / TICKS


def resident_bytes(pid: int) -> int:
    """Resident bytes of the family. A page shared by several processes counts once, in parts (PSS)."""
    return sum(_kibibytes(member, "smaps_rollup", "Pss:") for member in family(pid)) * 1024


def largest_resident_bytes(pid: int) -> int:
    """The largest resident size that the process itself had so far."""
    return _kibibytes(pid, "status", "VmHWM:") * 1024


@contextmanager
def peak(measure: Callable[[], int]) -> Iterator[list[int]]:
    """Collect values of `measure` while the block runs, every `EVERY_SECONDS`."""
    values: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(EVERY_SECONDS):
            values.append(measure())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield values
    finally:
        over.set()
        thread.join()


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended; who waited for it has its time
        return 0
    return sum(map(int, fields[11:15]))


def _kibibytes(pid: int, file: str, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
