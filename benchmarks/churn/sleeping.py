"""The scorer pool over actors that sleep, on a real Ray: how fast it is, and what it does when nodes come and go.

rates = programs_a_second((2, 4, 8, 16))
life = pool_life(changes=20)
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ray

from actors.calls import CallContext, Retries
from actors.scorer_actors import Scorer, ScorerActors
from actors.scorer_pool import ScorerPool
from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite, Verdict
from tests.support.ray_machines import Machines

T = TypeVar("T")

PROGRAM_SECONDS = 0.1
IDLE_SECONDS = 2.0
LEAST = 2
_PROBLEM = Problem("p", "", "f", TestSuite("calls", "[]"))
_TIMED_SECONDS, _ROUNDS = 4.0, 3
"""The best of so many rounds counts: what else the machine does makes each slower, never faster."""
_WAITING = 40
_PATIENCE = 180.0


class ScorerAsleep(Scorer):
    """Sleeps for each program. Its verdict names the program and the node."""

    def setup(self) -> None:
        """It needs no sandbox."""

    def score(self, problem: Problem, suite: tuple[str, Any], codes: Sequence[str | None]) -> list[Verdict]:
        time.sleep(PROGRAM_SECONDS * len(codes))
        node = ray.get_runtime_context().get_node_id()
        return [Verdict("passed", 1, 1, PROGRAM_SECONDS, f"{code} {node}") for code in codes]


class ActorsAsleep(ScorerActors):
    scorer = ScorerAsleep


class PoolAsleep(ScorerPool):
    """The pool itself, over such actors."""

    actors_class = ActorsAsleep


@dataclass(frozen=True)
class PoolLife:
    """What a pool did while nodes came and went. Seconds."""

    joined: float
    """From a node's joining, while work waited, to a scorer's first verdict there."""
    rested: float
    """From the last verdict until the pool was back at its least."""
    asked: int
    """Programs."""
    counted: int
    """Programs that the pool counts as run."""
    mistaken: int
    """Verdicts that are another program's."""
    lost: int
    """Nodes killed under scorers."""


def programs_a_second(scorers: Sequence[int]) -> dict[int, float]:
    """By the number of scorers, once they are up."""

    async def rate(count: int) -> float:
        async with _pool(workers=count) as pool:
            await pool.score(_PROBLEM, [f"first {n}" for n in range(2 * count)])
            programs = round(count * _TIMED_SECONDS / PROGRAM_SECONDS)
            seconds = []
            for number in range(_ROUNDS):
                started = time.monotonic()
                await pool.score(_PROBLEM, [f"{number} {n}" for n in range(programs)])
                seconds.append(time.monotonic() - started)
            return programs / min(seconds)

    with Machines(partitions=False, nodes=2, cpus=-(-max(scorers) // 2)) as machines, _driver(machines):
        return {count: asyncio.run(rate(count)) for count in scorers}


def pool_life(changes: int) -> PoolLife:
    """A node joins while all scorers are at work; then so many are lost and others join; then the pool rests."""
    with Machines(partitions=False, nodes=2, cpus=2) as machines, _driver(machines), _Stream() as stream:
        _until(lambda: stream.pool.counts()["busy"] == 4)
        joined = _first_verdict(stream, machines.gain_node())
        lost = 0
        for _ in range(changes):
            lost += machines.lose_node("scorer")
            _first_verdict(stream, machines.gain_node())
        stream.end()
        ended = time.monotonic()
        _until(lambda: sum(stream.pool.counts().values()) <= LEAST)
        rested = time.monotonic() - ended
        return PoolLife(joined, rested, stream.asked, stream.pool.programs_run, stream.mistaken, lost)


def _first_verdict(stream: _Stream, node: str) -> float:
    """Seconds until a verdict comes from there."""
    started = time.monotonic()
    _until(lambda: node in stream.nodes)
    return time.monotonic() - started


class _Stream:
    """Inside `with` a pool, in a thread, has programs waiting until the end is asked for, each with its caller."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = contextlib.AsyncExitStack()
        self._ended = False
        self._numbers = itertools.count()
        self.asked = self.mistaken = 0
        self.nodes: set[str] = set()
        """From which verdicts came."""

    def __enter__(self) -> _Stream:
        self._thread.start()
        self.pool = self._do(
            self._stack.enter_async_context(_pool(workers=LEAST, max_workers=16, idle_seconds=IDLE_SECONDS))
        )
        self._work = asyncio.run_coroutine_threadsafe(self._call_all(), self._loop)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def end(self) -> None:
        """Ask no more, and wait for the verdicts that are owed."""
        self._ended = True
        self._work.result(_PATIENCE)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def _call_all(self) -> None:
        await asyncio.gather(*(self._call() for _ in range(_WAITING)))

    async def _call(self) -> None:
        while not self._ended:
            code = str(next(self._numbers))
            self.asked += 1
            (verdict,) = await self.pool.score(_PROBLEM, [code])
            named, node = verdict.detail.split()
            self.mistaken += named != code
            self.nodes.add(node)


@contextlib.contextmanager
def _driver(machines: Machines) -> Iterator[None]:
    """Inside, this process is a driver on the cluster."""
    with contextlib.redirect_stdout(io.StringIO()):  # Ray prints its whole state for each lost node
        ray.init(address=machines.address, logging_level=logging.ERROR, log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()


@contextlib.asynccontextmanager
async def _pool(**config: float) -> AsyncIterator[ScorerPool]:
    options = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
    pool = PoolAsleep(ScorerConfig(**config), options, context=CallContext(Retries(1000)))  # type: ignore[arg-type]
    try:
        await pool.start()
        yield pool
    finally:
        pool.stop()


def _until(reached: Callable[[], bool]) -> None:
    """Raises `TimeoutError`."""
    until = time.monotonic() + _PATIENCE
    while not reached():
        if time.monotonic() > until:
            raise TimeoutError(f"the pool did not get there in {_PATIENCE:.0f} s")
        time.sleep(0.02)
