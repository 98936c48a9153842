"""The scorer actors, each with one sandbox. `ScorerActors` starts them for a `ScorerPool`, replaces the lost, has more
while work waits (those without a free CPU stay pending and show an autoscaler what is missing) and fewer while idle."""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import ray

from actors.calls import LOST, START, CallContext, result, told
from actors.ray_internals import free_cpus
from actors.watched import WATCHED, Watched, of_run
from raypoly.core.caches import LRUCache
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import RaypolyError
from raypoly.core.values import Problem, TestSuite, Verdict
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox

SUITES = 256
"""Long suites kept by hash, in the object store and in each actor."""
SUITE_CHARACTERS = 256 << 20


class Scorer(Watched):
    """Runs chunks of programs of one problem."""

    def __init__(self, limits: ScorerConfig, index: int) -> None:
        self._limits, self._index = limits, index
        self._suites = LRUCache[str, TestSuite](SUITES, SUITE_CHARACTERS)

    def __repr__(self) -> str:
        return of_run(f"Scorer({self._index})")

    def setup(self) -> None:
        """Start the sandbox. Raises `IsolationMissing`, which fails the call, not the actor."""
        self._sandbox = Sandbox(self._limits, StrategyEvidence() if self._limits.evidence else None)

    def score(self, problem: Problem, suite: tuple[str, Any], codes: Sequence[str | None]) -> list[Verdict]:
        """Verdicts in order. `problem` has no tests; `suite`: their hash, and the tests or a reference to them."""
        whole = replace(problem, tests=self._suite(*suite))
        verdicts = []
        for code in codes:
            verdicts.append(self._sandbox.score(whole, code))
            self.beat()
        return verdicts

    def reference_seconds(self, problem: Problem, suite: tuple[str, Any]) -> float | None:
        """CPU seconds of the slowest test of the problem's own solution. Raises `SandboxError`, `BrokenTests`."""
        return self._sandbox.reference_seconds(replace(problem, tests=self._suite(*suite)))

    def _suite(self, content: str, carried: Any) -> TestSuite:
        if isinstance(carried, TestSuite):
            return carried
        if content in self._suites:
            return self._suites[content]
        suite: TestSuite = ray.get(carried)
        return self._suites.put(content, suite, len(suite.source))


LOOK_SECONDS = 0.5
"""Seconds between looks at idle actors and at crawling chunks."""
_UNASKED_SECONDS = 20.0  # for which an actor that nothing waits for may go on starting: longer than a start takes
_MOST_AT_ONCE = 200  # actors a look: naming one takes the driver a millisecond or two
_REFUSED_SECONDS = 60.0  # seconds without growth after an actor could not start


@dataclass(eq=False)
class ScorerWorker:
    """A place of the pool, with one actor after another."""

    index: int
    actor: Any = None
    started: int = 0
    ready: bool = False
    chunks: int = 0
    since: float = 0.0
    """When it last had work, or work that waited for it."""
    pace: float | None = None
    """Seconds of a program there, in the moving average."""
    name: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def turn(self) -> tuple[int, int]:
        return self.chunks, self.index


class ScorerActors:
    scorer: ClassVar[type[Scorer]] = Scorer

    def __init__(
        self,
        config: ScorerConfig,
        options: dict[str, Any],
        context: CallContext,
        counted: Callable[[int], None],
        joined: Callable[[], None],
    ) -> None:
        """`counted` gets the number of workers; `joined` is called when one more is ready."""
        self._config, self._options, self._context = config, options, context
        self._counted, self._joined = counted, joined
        self._indices = itertools.count()
        self._workers = [ScorerWorker(next(self._indices)) for _ in range(config.workers)]
        self._ready: list[ScorerWorker] = []  # by their turns: a chunk must not cost a look at each of a thousand
        self._joining: set[asyncio.Task[None]] = set()
        self._grown_until = self._refused_until = 0.0

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[ScorerWorker]:
        return iter(self._workers)

    @property
    def handles(self) -> dict[str, Any]:
        """Those that run, or that the run needs."""
        needed = (worker for worker in self._workers if worker.ready or worker.index < self._config.workers)
        return {worker.name: worker.actor for worker in needed if worker.actor is not None}

    @property
    def ready(self) -> Sequence[ScorerWorker]:
        return self._ready

    @property
    def idle(self) -> Sequence[ScorerWorker]:
        return self._ready[: bisect.bisect_left(self._ready, (1, 0), key=ScorerWorker.turn)]

    @property
    def starting(self) -> int:
        return len(self._workers) - len(self._ready)

    async def start(self) -> None:
        """Start the least number. Raises `IsolationMissing` where programs can't be confined."""
        await asyncio.gather(*(self._get_ready(worker) for worker in self._workers))

    def note(self, worker: ScorerWorker, chunks: int = 0, ready: bool | None = None) -> None:
        if worker.ready:
            del self._ready[bisect.bisect_left(self._ready, worker.turn(), key=ScorerWorker.turn)]
        worker.chunks += chunks
        worker.ready = worker.ready if ready is None else ready
        if worker.ready:
            bisect.insort(self._ready, worker, key=ScorerWorker.turn)

    async def lost(self, worker: ScorerWorker, started: int, error: BaseException) -> None:
        """Replace the lost actor, once for all chunks lost with it, if too few are left."""
        if worker.index >= self._config.workers:
            self._remove(worker)
            return
        async with worker.lock:
            if worker.started == started:
                self.note(worker, ready=False)
                self._end(worker)
                await self._context.again(f"Scorer {worker.index}", error)
                await self._get_ready(worker)

    def grow(self, chunks: int) -> None:
        """Have an actor start for each of `chunks` that wait, while there is room. An autoscaler sees all at once."""
        if now() < self._grown_until:
            return
        self._grown_until = now() + LOOK_SECONDS
        starting = [worker for worker in self._workers if not worker.ready]
        for worker in starting[:chunks]:
            worker.since = now()
        room = (self._config.max_workers or 0) - len(self._workers)
        new = min(room, chunks - len(starting), _MOST_AT_ONCE)
        for _ in range(new if now() >= self._refused_until else 0):
            worker = ScorerWorker(next(self._indices), since=now())
            self._workers.append(worker)
            task = asyncio.create_task(self._join(worker))
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)

    @property
    def grown(self) -> bool:
        return len(self._workers) > self._config.workers

    def give_back(self, work_waits: bool) -> None:
        """End actors beyond the least number: the starting that no work waits for, and the idle."""
        for worker in reversed(self._workers[self._config.workers :]):
            kept = self._config.idle_seconds if worker.ready else _UNASKED_SECONDS
            if not (worker.chunks or (worker.ready and work_waits)) and now() - worker.since > kept:
                self._remove(worker)

    def stop(self) -> None:
        for task in self._joining:
            task.cancel()
        for worker in self._workers:
            self._end(worker)

    async def _get_ready(self, worker: ScorerWorker) -> None:
        await self._start(worker)
        self.note(worker, ready=True)

    async def _start(self, worker: ScorerWorker) -> None:
        while True:
            actor = self._make(worker)
            try:
                with self._context.in_flight.waiting(START, f"scorer-{worker.index}", actor):
                    lacks = partial(self._lacks, worker)
                    await told(result(actor.setup.remote()), lacks, self._context.retries.note)
                return
            except LOST as error:
                self._end(worker)
                await self._context.again(f"Scorer {worker.index}", error)

    def _lacks(self, worker: ScorerWorker) -> str:
        """What all that wait for a place lack, told by the first of them."""
        waiting = [each for each in self._workers[: self._config.workers] if not each.ready]
        free = free_cpus(self._config.label) if worker is waiting[0] else None
        if free is None:
            return ""
        cpus, most = self._options.get("num_cpus", 0.0), max(free, default=0.0)
        if most > cpus - 1e-6:  # it has a place, and starts
            return ""
        for call in self._context.in_flight.open:
            if call.stage == START and call.who.startswith("scorer-"):
                call.beat()  # a restart gives nobody a place
        label = "" if self._config.label is None else f" with scorer.label={self._config.label}"
        return (
            f"Waiting for {len(waiting)} of {self._config.workers} scorers (scorer.workers): each needs "
            f"scorer.cpus={cpus:g} of a node{label}, and none of {len(free)} has more than {most:g} free. `ray status` "
            "shows who has them. Unless an autoscaler brings more, add nodes, or lower scorer.workers or scorer.cpus."
        )

    @cached_property
    def _remote(self) -> Any:
        return ray.remote(**WATCHED)(self.scorer)

    def _make(self, worker: ScorerWorker) -> Any:
        worker.started += 1
        worker.name = f"scorer-{worker.index}" + (f"-{worker.started}" if worker.started > 1 else "")
        actor = self._remote.options(name=worker.name, **self._context.unfit.elsewhere(self._options))
        worker.actor = actor.remote(self._config, worker.index)
        return worker.actor

    async def _join(self, worker: ScorerWorker) -> None:
        try:
            await result(self._make(worker).setup.remote())
        except (*LOST, RaypolyError) as error:  # no retry: retries are for the actors that the run needs
            self._context.unfit.take(error)
            if worker in self._workers:  # else it was not needed any more
                self._refused_until = now() + _REFUSED_SECONDS
                self._remove(worker)
            return
        if worker not in self._workers:  # withdrawn at the moment it was there
            return
        worker.since = now()
        self.note(worker, ready=True)
        self._count()
        self._joined()

    def _remove(self, worker: ScorerWorker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            self.note(worker, ready=False)
            self._count()
        self._end(worker)

    def _count(self) -> None:
        self._counted(sum(worker.ready or worker.index < self._config.workers for worker in self._workers))

    def _end(self, worker: ScorerWorker) -> None:
        if worker.actor is not None:
            ray.kill(worker.actor)
            worker.actor = None


def now() -> float:
    return asyncio.get_running_loop().time()
