"""Scoring without isolation: the floor of what a program costs, and what an interpreter for each costs.

Nothing here may be used on programs that nobody trusts.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.scorers.programs import Item, Outcome, Runner, Scored

SECONDS = 6.0
"""Wall seconds for one fresh interpreter."""


@contextlib.contextmanager
def warm_process(workers: int) -> Iterator[Runner]:
    """Every program in this process, one after the other, each in a fresh namespace. `workers` means nothing here."""
    yield lambda items: Scored(_executed(items))


@contextlib.contextmanager
def warm_process_reusing_tests(workers: int) -> Iterator[Runner]:
    """As `warm_process`, with each prelude and check compiled once: the least that a scorer could spend."""
    compiled = functools.cache(functools.partial(compile, filename="<tests>", mode="exec", dont_inherit=True))

    def checked(item: Item) -> None:
        namespace: dict[str, Any] = {"__name__": "__candidate__"}
        exec(compiled(item.problem.prelude), namespace)
        exec(compile(item.code, "<program>", "exec", dont_inherit=True), namespace)
        exec(compiled(item.problem.tests.source), namespace)
        exec(f"check({item.problem.entry_point})", namespace)

    def run(items: Sequence[Item]) -> Scored:
        with _quietly():
            return Scored([_outcome(functools.partial(checked, item)) for item in items])

    yield run


@contextlib.contextmanager
def warm_processes(workers: int) -> Iterator[Runner]:
    """As `warm_process`, in `workers` processes that share the programs out beforehand."""
    context = multiprocessing.get_context("fork")

    def run(items: Sequence[Item]) -> Scored:
        started = []
        for worker in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(items[worker::workers], theirs))
            process.start()
            theirs.close()
            started.append((process, ours))
        outcomes = [Outcome(False)] * len(items)
        for worker, (process, ours) in enumerate(started):
            outcomes[worker::workers] = ours.recv()
            process.join()
        return Scored(outcomes)

    yield run


@contextlib.contextmanager
def fresh_interpreters(workers: int) -> Iterator[Runner]:
    """A new `python` for each program, which reads it from standard input and tells by its exit code."""
    with ThreadPoolExecutor(workers) as pool:
        yield lambda items: Scored(list(pool.map(_interpreted, items)))


def _interpreted(item: Item) -> Outcome:
    command = [sys.executable, "-I", "-"]
    try:
        ended = subprocess.run(
            command, input=item.whole.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return Outcome(False, "timeout")
    return Outcome(ended.returncode == 0, f"exit code {ended.returncode}")


def _serve(items: Sequence[Item], channel: Connection) -> None:
    channel.send(_executed(items))
    channel.close()


def _executed(items: Sequence[Item]) -> list[Outcome]:
    with _quietly():
        return [execute(item.whole) for item in items]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def execute(whole: str) -> Outcome:
    """Run prelude, program and check here and now."""
    return _outcome(lambda: exec(compile(whole, "<program>", "exec", dont_inherit=True), {"__name__": "__candidate__"}))


def _outcome(run: Callable[[], None]) -> Outcome:
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - whatever a program raises, it did not pass
        return Outcome(False, type(error).__name__)
    return Outcome(True)
