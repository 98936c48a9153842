"""What a way of scoring costs: wall seconds, and CPU seconds of every process that it starts.

Each measurement has a process of its own, so that none warms or burdens the next.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks.scorers.programs import Item, Scored


@dataclass(frozen=True)
class Measured:
    """One run of one arm."""

    scored: Scored
    wall_seconds: float
    """From the first program to the last; what the arm needs once is left out."""
    cpu_seconds: float
    """User and system time of the arm's process and all it started and waited for, from its beginning to its end."""


def measure(arm: str, items: Sequence[Item], workers: int) -> Measured:
    """Run `items` through the arm in a fresh process. Raises `RuntimeError` where that process dies."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(arm, items, workers, theirs))
    process.start()
    theirs.close()
    try:
        measured: Measured = ours.recv()
    except EOFError:
        raise RuntimeError(f"The arm {arm} died; its message is above.") from None
    finally:
        process.join()
    return measured


def _run(arm: str, items: Sequence[Item], workers: int, channel: Connection) -> None:
    from benchmarks.scorers import ARMS

    gc.collect()
    gc.freeze()  # what this benchmark itself has loaded is no burden to any arm, nor to what an arm forks
    before = _cpu_seconds()
    with ARMS[arm](workers) as run:
        begin = time.perf_counter()
        scored = run(items)
        wall = time.perf_counter() - begin
    # Only now have the arm's processes been waited for, and only then does the kernel count their time as ours.
    channel.send(Measured(scored, wall, _cpu_seconds() - before))
    channel.close()


def _cpu_seconds() -> float:
    found = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in found)
