"""Scoring by raypoly: W threads, each owning one `Sandbox`."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar

from benchmarks.scorers.programs import Item, Outcome, Runner, Scored
from raypoly.core.config import ScorerConfig
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox

T = TypeVar("T")
R = TypeVar("R")


class Shared(Protocol):
    """Maps a function over things, each with one of the sandboxes for its own."""

    def __call__(self, use: Callable[[Sandbox, T], R], things: Sequence[T]) -> list[R]: ...


@contextlib.contextmanager
def sandboxed(workers: int) -> Iterator[Runner]:
    """Verdicts alone."""
    with _sandboxes(workers, evidence=False) as shared:
        yield lambda items: Scored(shared(_outcome, items))


@contextlib.contextmanager
def sandboxed_with_evidence(workers: int) -> Iterator[Runner]:
    """Verdicts with what judges ask for: canonical form, constructs, growth."""
    with _sandboxes(workers, evidence=True) as shared:
        yield lambda items: Scored(shared(_outcome, items))


@contextlib.contextmanager
def calibrated(workers: int) -> Iterator[Runner]:
    """Verdicts under limits that each problem's own solution sets; it is run once a problem, before the programs."""
    with _sandboxes(workers, evidence=False) as shared:

        def run(items: Sequence[Item]) -> Scored:
            begin = time.perf_counter()
            problems = list({item.problem.id: item.problem for item in items if item.problem.solution}.values())
            seconds = shared(lambda sandbox, problem: sandbox.reference_seconds(problem), problems)
            known = {problem.id: spent for problem, spent in zip(problems, seconds, strict=True)}
            spent = time.perf_counter() - begin
            limited = [
                replace(item, problem=replace(item.problem, reference_seconds=known.get(item.problem.id)))
                for item in items
            ]
            return Scored(shared(_outcome, limited), calibration_seconds=spent)

        yield run


def _outcome(sandbox: Sandbox, item: Item) -> Outcome:
    verdict = sandbox.score(item.problem, item.code)
    return Outcome(verdict.passed, f"{verdict.status}: {verdict.detail}")


@contextlib.contextmanager
def _sandboxes(workers: int, evidence: bool) -> Iterator[Shared]:
    """`workers` of them, and as many threads."""
    free: queue.SimpleQueue[Sandbox] = queue.SimpleQueue()

    def shared(use: Callable[[Sandbox, T], R], things: Sequence[T]) -> list[R]:
        def one(thing: T) -> R:
            sandbox = free.get()
            try:
                return use(sandbox, thing)
            finally:
                free.put(sandbox)

        return list(pool.map(one, things))

    limits = ScorerConfig(workers=workers)
    with contextlib.ExitStack() as opened, ThreadPoolExecutor(workers) as pool:
        for _ in range(workers):
            free.put(opened.enter_context(Sandbox(limits, StrategyEvidence() if evidence else None)))
        yield shared
