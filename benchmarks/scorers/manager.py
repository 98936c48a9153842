"""Scoring in the usual style of code-RL graders: for each program a Manager's list and a forked process with a timeout.

Written for this benchmark, as lean as the style allows: workers are forked from a process that has loaded little, and
the child keeps the parent's modules warm. Limits are by the wall clock, and the comparison runs beside the candidate.
"""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import io
import multiprocessing
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator, MutableSequence, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.scorers.plain import execute
from benchmarks.scorers.programs import Item, Outcome, Runner, Scored

SECONDS = 6.0
MEMORY_BYTES = 4 << 30
_FORK = multiprocessing.get_context("fork")


@contextlib.contextmanager
def manager_and_fork(workers: int) -> Iterator[Runner]:
    """`workers` processes, each of which starts a Manager and a forked child for every program."""

    def run(items: Sequence[Item]) -> Scored:
        with ProcessPoolExecutor(workers, mp_context=_FORK) as pool:
            return Scored(list(pool.map(score, [item.whole for item in items])))

    yield run


def score(whole: str) -> Outcome:
    """Of one program with its check. Forks this process twice."""
    with _FORK.Manager() as manager:
        result: MutableSequence[Outcome] = manager.list()
        process = _FORK.Process(target=_child, args=(whole, result))
        process.start()
        process.join(timeout=SECONDS + 1)
        if process.is_alive():
            process.kill()
            process.join()
        return result[0] if len(result) else Outcome(False, "timeout")


def _child(whole: str, result: MutableSequence[Outcome]) -> None:
    _disarm()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        outcome = execute(whole)
    result.append(outcome)


def _disarm() -> None:
    """Limits of CPU time and memory, and the best known destructive calls taken away: a courtesy, no isolation."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS) + 1, int(SECONDS) + 1))
    faulthandler.disable()
    for module, names in (
        (builtins, ("exit", "quit")),
        (os, ("kill", "system", "putenv", "remove", "rename", "rmdir", "unlink", "fork", "chmod", "chown", "chroot")),
        (shutil, ("rmtree", "move", "chown")),
        (subprocess, ("Popen",)),
    ):
        for name in names:
            setattr(module, name, None)
