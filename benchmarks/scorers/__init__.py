"""The ways of scoring programs that `benchmarks.scorer` compares; each is a context that gives a `Runner`.

    with sandboxed(workers=2) as run:
        outcomes = run(items).outcomes

What a way needs once (a warm child, a pool) is made on entering and ended on leaving, so that its CPU time can be told
from that of the programs.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from benchmarks.scorers.manager import manager_and_fork
from benchmarks.scorers.plain import fresh_interpreters, warm_process, warm_process_reusing_tests, warm_processes
from benchmarks.scorers.programs import Runner
from benchmarks.scorers.sandboxed import calibrated, sandboxed, sandboxed_with_evidence

ARMS: dict[str, Callable[[int], AbstractContextManager[Runner]]] = {
    "raypoly": sandboxed,
    "raypoly, evidence": sandboxed_with_evidence,
    "(a) one warm process": warm_process,
    "(a) tests compiled once": warm_process_reusing_tests,
    "(a) W warm processes": warm_processes,
    "(b) fresh python": fresh_interpreters,
    "(c) Manager and fork": manager_and_fork,
    "raypoly, calibrated": calibrated,
}

__all__ = ["ARMS", "Runner"]
