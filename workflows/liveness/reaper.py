"""A small process that outlives its driver by seconds and removes what is left of it, however the driver ended.

Ray's agents live on for minutes after their raylet was killed: they wait for a head that is gone.

    with Reaper(folder) as reaper:
        ...                         # Ray starts
        reaper.watch(pids())        # these have to end with this process
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

_SCRIPT = """
import os, shutil, signal, sys, time
watched, folder = {}, sys.argv[1]
def start(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
for line in sys.stdin:
    watched[int(line)] = start(int(line))
until = time.monotonic() + 3
while time.monotonic() < until and any(begun and start(pid) == begun for pid, begun in watched.items()):
    time.sleep(0.1)
for pid, begun in watched.items():
    if begun and start(pid) == begun:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
for _ in range(10):
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.exists(folder):
        break
    time.sleep(1)
"""
"""Its input ends with the driver. A process is identified by pid and start time, since pids are reused."""


class Reaper:
    """Removes one temporary folder and kills the processes that belong to it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _SCRIPT, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # it gets no signal to the driver's group
            env={},  # it gets none of the driver's keys
            text=True,
        )
        return self

    def __exit__(self, *raised: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, processes: Iterable[int]) -> None:
        """Kill these processes if they outlive the block, or this process."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("".join(f"{pid}\n" for pid in processes))
            self._process.stdin.flush()
        except BrokenPipeError:  # somebody killed the reaper: Ray's own clean-up has to do
            return


def descendants(pid: int) -> set[int]:
    """Every process that this one has started, directly or through others."""
    parent_of = dict(parents())
    found = {pid}
    while more := {child for child, parent in parent_of.items() if parent in found} - found:
        found |= more
    return found - {pid}


def parents() -> Iterator[tuple[int, int]]:
    """Pid and parent's pid of every process of this machine."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield int(folder.name), int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has just ended
                continue
