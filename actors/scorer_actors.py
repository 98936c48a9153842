"""The actors of a `ScorerPool`: starts them, replaces the lost, has more of them while work waits, fewer while idle.

There are `workers` at least. While every one is at work and programs wait there may be more, up to `max_workers`: as
many as there are free CPUs for, else one, which stays pending and shows an autoscaler what is missing. One of those
that was idle for `idle_seconds` goes.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import ray

from actors.calls import LOST, START, CallContext, result
from actors.scorer import Scorer
from actors.watched import WATCHED
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import RaypolyError

LOOK_SECONDS = 0.5
"""How often more actors are asked for, idle ones are given back, and chunks are looked at."""
_REFUSED_SECONDS = 60.0
"""How long no more actors are asked for after one could not start."""


@dataclass(eq=False)
class ScorerWorker:
    """A place of the pool, with one actor after another."""

    index: int
    actor: Any = None
    started: int = 0
    ready: bool = False
    chunks: int = 0
    """In flight."""
    since: float = 0.0
    """When it last had something to do, or was asked for, by the event loop's clock."""
    pace: float | None = None
    """Seconds of a program there from being sent to its verdict, in the moving average."""
    name: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def turn(self) -> tuple[int, int]:
        """The lowest gets the next chunk."""
        return self.chunks, self.index


class ScorerActors:
    """Each is started with Ray's `options`."""

    scorer: ClassVar[type[Scorer]] = Scorer
    """Their class."""

    def __init__(
        self,
        config: ScorerConfig,
        options: dict[str, Any],
        context: CallContext,
        counted: Callable[[int], None],
        joined: Callable[[], None],
    ) -> None:
        """`counted` is told how many workers there are when that changes; `joined` is called when one more is ready."""
        self._config, self._options, self._context = config, options, context
        self._counted, self._joined = counted, joined
        self._indices = itertools.count()
        self._workers = [ScorerWorker(next(self._indices)) for _ in range(config.workers)]
        self._ready: list[ScorerWorker] = []
        """Those that are ready, by their turns: a chunk must not cost a look at each of a thousand."""
        self._joining: set[asyncio.Task[None]] = set()
        self._grown_until = 0.0
        """Until when no more actors are asked for."""

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[ScorerWorker]:
        return iter(self._workers)

    @property
    def handles(self) -> dict[str, Any]:
        """By their names."""
        return {worker.name: worker.actor for worker in self._workers if worker.actor is not None}

    @property
    def ready(self) -> Sequence[ScorerWorker]:
        """By their turns."""
        return self._ready

    @property
    def idle(self) -> Sequence[ScorerWorker]:
        """Those of `ready` without a chunk."""
        return self._ready[: bisect.bisect_left(self._ready, (1, 0), key=ScorerWorker.turn)]

    @property
    def starting(self) -> int:
        return len(self._workers) - len(self._ready)

    async def start(self) -> None:
        """Start the least number of actors. Raises `IsolationMissing` where programs can't be confined."""
        await asyncio.gather(*(self._start(worker) for worker in self._workers))
        for worker in self._workers:
            self.note(worker, ready=True)

    def note(self, worker: ScorerWorker, chunks: int = 0, ready: bool | None = None) -> None:
        """Note chunks that a worker has more, or less, and whether it is ready now."""
        if worker.ready:
            del self._ready[bisect.bisect_left(self._ready, worker.turn(), key=ScorerWorker.turn)]
        worker.chunks += chunks
        worker.ready = worker.ready if ready is None else ready
        if worker.ready:
            bisect.insort(self._ready, worker, key=ScorerWorker.turn)

    async def lost(self, worker: ScorerWorker, started: int, error: BaseException) -> None:
        """The actor that `worker` had when it was `started` for the last time is lost. Replace it, once for all chunks
        that were lost with it, if there would be too few without it: the place of another may have gone with it."""
        if worker.index >= self._config.workers:
            self._remove(worker)
            return
        async with worker.lock:
            if worker.started == started:
                self.note(worker, ready=False)
                self._end(worker)
                await self._context.retries.again(f"Scorer {worker.index}", error)
                await self._start(worker)
                self.note(worker, ready=True)

    def grow(self, chunks: int) -> None:
        """Ask for more actors, for `chunks` that wait: as many as there are free CPUs for, else one more."""
        room = (self._config.max_workers or 0) - len(self._workers)
        if room <= 0 or now() < self._grown_until:
            return
        self._grown_until = now() + LOOK_SECONDS
        wanted = max(1, min(self._free_places(), chunks)) - self.starting
        for _ in range(min(room, wanted)):
            worker = ScorerWorker(next(self._indices), since=now())
            self._workers.append(worker)
            task = asyncio.create_task(self._join(worker))
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)

    @property
    def grown(self) -> bool:
        """Whether there are more than `workers`."""
        return len(self._workers) > self._config.workers

    def give_back_idle(self) -> None:
        for worker in reversed(self._workers[self._config.workers :]):
            if not worker.chunks and now() - worker.since > self._config.idle_seconds:
                self._remove(worker)

    def stop(self) -> None:
        for task in self._joining:
            task.cancel()
        for worker in self._workers:
            self._end(worker)

    async def _start(self, worker: ScorerWorker) -> None:
        """Start an actor, and another one if it is lost meanwhile."""
        while True:
            actor = self._make(worker)
            try:
                with self._context.in_flight.waiting(START, f"scorer-{worker.index}", actor):
                    await result(actor.setup.remote())
                return
            except LOST as error:
                self._end(worker)
                await self._context.retries.again(f"Scorer {worker.index}", error)

    def _make(self, worker: ScorerWorker) -> Any:
        worker.started += 1
        worker.name = f"scorer-{worker.index}" + (f"-{worker.started}" if worker.started > 1 else "")
        actor = ray.remote(**WATCHED)(self.scorer).options(name=worker.name, **self._options)
        worker.actor = actor.remote(self._config, worker.index)
        return worker.actor

    async def _join(self, worker: ScorerWorker) -> None:
        """Start one more actor, or do without: the run's retries are for those that it needs."""
        try:
            await result(self._make(worker).setup.remote())
        except (*LOST, RaypolyError):
            if worker in self._workers:  # else it was not needed any more
                self._grown_until = now() + _REFUSED_SECONDS
                self._remove(worker)
            return
        worker.since = now()
        self.note(worker, ready=True)
        self._count()
        self._joined()

    def _free_places(self) -> int:
        """How many more actors the cluster has CPUs for now."""
        return int(ray.available_resources().get("CPU", 0.0) / max(self._options.get("num_cpus", 0.0), 0.01))

    def _remove(self, worker: ScorerWorker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            self.note(worker, ready=False)
            self._count()
        self._end(worker)

    def _count(self) -> None:
        """One that is asked for and may never come takes over from no other."""
        self._counted(sum(worker.ready or worker.index < self._config.workers for worker in self._workers))

    def _end(self, worker: ScorerWorker) -> None:
        if worker.actor is not None:
            ray.kill(worker.actor)
            worker.actor = None


def now() -> float:
    """By the event loop's clock, in seconds."""
    return asyncio.get_running_loop().time()
