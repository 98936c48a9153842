"""`ScorerPool`, the scorer actors' client in the driver: it gives them programs, grows and shrinks, replaces the lost.

    pool = ScorerPool(ScorerConfig(workers=2, max_workers=8), {"num_cpus": 1})
    await pool.start()
    verdicts = await pool.score(problem, ["def f(n): ...", None])

Programs of all groups wait in one queue (`raypoly/scoring/program_queue.py`), the most urgent first. Short programs
travel in small chunks, two in flight an actor. Where programs are not short, each travels alone to an idle actor, so
that a slow program delays no other.

The pool has `workers` actors at least. While programs wait and every actor is at work it starts more, up to
`max_workers`: as many as there are free CPUs for, else one, which stays pending and shows an autoscaler what is
missing. An actor that was idle for `idle_seconds` goes. A chunk on an actor that is known to be slow, or that takes
longer than its programs' limits allow, is given to an idle actor as well; the first verdict counts.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import ray
from ray.exceptions import RayError

from actors.calls import LOST, START, CallContext, node_died, reason, result
from actors.scorer import SUITE_CHARACTERS, SUITES, Scorer
from actors.watched import WATCHED
from raypoly.config import ScorerConfig
from raypoly.errors import BrokenTests, IsolationMissing, OutOfRetries, RaypolyError, SandboxError
from raypoly.lru_cache import LRUCache
from raypoly.scoring.program_queue import Chunk, ProgramQueue, QueuedProgram
from raypoly.values import WITHOUT_TESTS, Problem, TestSuite, Verdict

CHUNK = 8
"""The most short programs that travel together."""
_IN_FLIGHT = 2
"""Chunks of short programs that an actor has at once: one runs, the next waits there."""
_SHORT_SECONDS = 0.05
"""The most CPU time of the programs of one chunk, by the moving average: their way to an actor (1 to 2 ms) is worth
sharing, and none waits long for another. Programs are short while one alone takes less."""
_NEWEST = 0.1
"""Weight of the newest program in the moving averages."""
AFTER_ALL = 2**31
"""An `order` behind all others: for programs that are not urgent."""
_SHORT_SUITE = 32 << 10
"""A suite of at most so many characters travels with each chunk: the object store takes longer (3 ms)."""
_LOOK_SECONDS = 0.5
"""How often the pool looks for idle actors and for chunks that crawl."""
_SLOW = 3.0
"""An actor is slow that takes so many times as long for a program as the pool does; so is its chunk after that time."""
_LEAST_CRAWL = 1.0
"""Seconds before which no chunk crawls."""
_REFUSED_SECONDS = 60.0
"""How long the pool asks for no more actors after one could not start."""


@dataclass(eq=False)
class _Worker:
    """One actor of the pool. A lost one is replaced if the pool would have too few."""

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


@dataclass(eq=False)
class _Flight:
    """A chunk on its way through a worker."""

    chunk: Chunk
    worker: _Worker
    since: float
    doubled: bool = False
    """Whether another worker has it as well."""


class ScorerPool:
    """Scores programs on actors that are started with Ray's `options` each."""

    scorer: ClassVar[type[Scorer]] = Scorer
    """The actors' class."""

    def __init__(
        self,
        config: ScorerConfig,
        options: dict[str, Any],
        cache_size: int = 100_000,
        context: CallContext | None = None,
    ) -> None:
        self._config, self._options = config, options
        self._context = context or CallContext()
        self._queue = ProgramQueue(config.workers, True, self._settled, cache_size)
        self._futures: dict[QueuedProgram, asyncio.Future[None]] = {}
        self._suites = LRUCache[str, Any](SUITES, SUITE_CHARACTERS)
        self._indices = itertools.count()
        self._workers = [_Worker(next(self._indices)) for _ in range(config.workers)]
        self._ready: list[_Worker] = []
        """Those that are ready, by their turns: a chunk must not cost a look at each of a thousand."""
        self._flights: dict[_Flight, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._look: asyncio.TimerHandle | None = None
        self._program_seconds = _SHORT_SECONDS
        """CPU seconds of a program, in the moving average."""
        self._error: RaypolyError | None = None
        """Why no actor can be started any more."""
        self._stopped = False
        self._grown_until = 0.0
        """Until when no more actors are asked for."""
        self.programs_run = 0
        """Programs whose verdict came from a sandbox; cache hits don't count."""

    @property
    def actors(self) -> dict[str, Any]:
        """The actors' handles by their names."""
        return {worker.name: worker.actor for worker in self._workers if worker.actor is not None}

    @property
    def waiting(self) -> int:
        """Programs that no actor has."""
        return self._queue.waiting

    def counts(self) -> dict[str, int]:
        """How many actors are at work, idle, and starting."""
        ready, idle = len(self._ready), len(self._idle)
        return {"busy": ready - idle, "idle": idle, "starting": len(self._workers) - ready}

    async def start(self) -> None:
        """Start the least number of actors. Raises `IsolationMissing` where programs can't be confined."""
        await asyncio.gather(*(self._start(worker) for worker in self._workers))
        for worker in self._workers:
            self._note(worker, ready=True)

    async def score(self, problem: Problem, codes: Sequence[str | None], order: int = 0) -> list[Verdict]:
        """One verdict a program, in order, never `infra`. Waiting programs with the lowest `order` run first. A problem
        without tests needs no actor.

        Raises `SandboxError` where the sandbox failed for good, `BrokenTests` where the tests can't be run.
        """
        if problem.tests.kind == "none":
            return [WITHOUT_TESTS] * len(codes)
        if self._error is not None:
            raise self._error
        programs = [self._queue.put(problem, code, order) for code in codes]
        loop = asyncio.get_running_loop()
        waits = {self._futures.setdefault(each, loop.create_future()) for each in programs if not each.done}
        loop.call_soon(self._dispatch)  # behind other groups that come in this moment, which may be more urgent
        if waits:  # wait, not gather: cancelling this caller must not cancel what others wait for
            await asyncio.wait(waits)
        for future in waits:
            future.result()  # raises where the pool was stopped
        for program in programs:
            if program.error is not None:
                raise program.error
        return [program.verdict for program in programs if program.verdict is not None]

    def stop(self) -> None:
        """End the actors and cancel all waits for verdicts."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()
        if self._look is not None:
            self._look.cancel()
        for worker in self._workers:
            self._end(worker)

    def _settled(self, program: QueuedProgram) -> None:
        future = self._futures.pop(program, None)
        if future is not None and not future.done():
            future.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _dispatch(self) -> None:
        """Give what waits to workers that have room, and start more of them where none has."""
        if self._stopped:
            return
        refused: list[_Worker] = []
        while self._queue.waiting and len(refused) < 2:  # what one worker may not run, another may
            worker = self._with_room(refused)
            if worker is None:
                break
            chunk = self._queue.take(worker.index, self._chunk_size())
            if chunk is None:
                refused.append(worker)
            else:
                self._send(_Flight(chunk, worker, self._now()))
        if self._queue.waiting and not refused:
            self._grow()

    def _with_room(self, refused: Sequence[_Worker] = ()) -> _Worker | None:
        """The worker with the fewest chunks; None where none has room."""
        room = _IN_FLIGHT if self._program_seconds < _SHORT_SECONDS else 1
        found = next((worker for worker in self._ready if worker not in refused), None)
        return found if found is not None and found.chunks < room else None

    @property
    def _idle(self) -> Sequence[_Worker]:
        return self._ready[: bisect.bisect_left(self._ready, (1, 0), key=_Worker.turn)]

    def _note(self, worker: _Worker, chunks: int = 0, ready: bool | None = None) -> None:
        """Note chunks that a worker has more, or less, and whether it is ready now."""
        if worker.ready:
            del self._ready[bisect.bisect_left(self._ready, worker.turn(), key=_Worker.turn)]
        worker.chunks += chunks
        worker.ready = worker.ready if ready is None else ready
        if worker.ready:
            bisect.insort(self._ready, worker, key=_Worker.turn)

    def _chunk_size(self) -> int:
        return max(1, int(_SHORT_SECONDS / max(self._program_seconds, _SHORT_SECONDS / CHUNK)))

    def _send(self, flight: _Flight) -> None:
        self._flights[flight] = None
        self._note(flight.worker, chunks=1)
        self._spawn(self._fly(flight))
        self._look_later()

    async def _fly(self, flight: _Flight) -> None:
        worker, chunk = flight.worker, flight.chunk
        try:
            await self._run(flight)
        except BrokenTests as error:
            self._queue.reject(chunk, error)
        except (OutOfRetries, IsolationMissing) as error:  # no actor can be had any more
            self._error = error
            self._queue.abandon(chunk, error)
            self._queue.abandon_waiting(error)
        except SandboxError as error:
            self._queue.again(chunk, worker.index, str(error))
        except (RayError, RaypolyError) as error:  # the actor's own code failed
            self._queue.abandon(chunk, error)
        # Not where this task is cancelled: then the pool is stopped, or the event loop ends.
        self._note(worker, chunks=-1)
        worker.since = self._now()
        self._flights.pop(flight, None)
        self._dispatch()

    async def _run(self, flight: _Flight) -> None:
        worker, chunk, problem = flight.worker, flight.chunk, flight.chunk.state.problem
        programs = [program for program in chunk.programs if not program.done]
        if problem is None or not (programs or chunk.calibrates):
            return
        suite = (problem.tests.hash, self._reference(problem.tests))
        tests, solution = replace(problem.tests, source=""), problem.solution if chunk.calibrates else ""
        bare = replace(chunk.state.limited(), tests=tests, public_tests=None, solution=solution)
        started, actor = worker.started, worker.actor
        try:
            with self._context.in_flight.waiting("score", f"scorer-{worker.index}", actor):
                if chunk.calibrates:
                    self._queue.settle(chunk.state, await result(actor.reference_seconds.remote(bare, suite)))
                    return
                codes = [program.code for program in programs]
                verdicts: list[Verdict] = await result(actor.score.remote(bare, suite, codes))
        except LOST as error:
            self._queue.again(chunk, worker.index, f"its worker was lost ({reason(error)})", not node_died(error))
            if worker.index < self._config.workers:
                await self._replace(worker, started, error)
            else:  # its place may have gone with it
                self._remove(worker)
            return
        seconds = (self._now() - flight.since) / len(programs)
        worker.pace = seconds if worker.pace is None else worker.pace + _NEWEST * (seconds - worker.pace)
        for program, verdict in zip(programs, verdicts, strict=True):
            self._program_seconds += _NEWEST * (verdict.cpu_seconds - self._program_seconds)
            if verdict.status == "infra":
                self._queue.again(Chunk(chunk.state, (program,)), worker.index, verdict.detail)
            else:
                self.programs_run += self._queue.finish(program, verdict)

    def _reference(self, tests: TestSuite) -> Any:
        """The suite itself if it is short, else its reference in the object store."""
        if len(tests.source) <= _SHORT_SUITE:
            return tests
        if tests.hash in self._suites:
            return self._suites[tests.hash]
        return self._suites.put(tests.hash, ray.put(tests), len(tests.source))

    async def _start(self, worker: _Worker) -> None:
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

    def _make(self, worker: _Worker) -> Any:
        worker.started += 1
        worker.name = f"scorer-{worker.index}" + (f"-{worker.started}" if worker.started > 1 else "")
        actor = ray.remote(**WATCHED)(self.scorer).options(name=worker.name, **self._options)
        worker.actor = actor.remote(self._config, worker.index)
        return worker.actor

    async def _replace(self, worker: _Worker, started: int, error: BaseException) -> None:
        """Start a new actor, once for all chunks that were lost with the old one."""
        async with worker.lock:
            if worker.started == started:
                self._note(worker, ready=False)
                self._end(worker)
                await self._context.retries.again(f"Scorer {worker.index}", error)
                await self._start(worker)
                self._note(worker, ready=True)

    def _grow(self) -> None:
        """Ask for more actors: for free CPUs as many as there is work for, else for one more than there are."""
        room = (self._config.max_workers or 0) - len(self._workers)
        if room <= 0 or self._now() < self._grown_until:
            return
        self._grown_until = self._now() + _LOOK_SECONDS
        chunks = -(-self._queue.waiting // self._chunk_size())
        wanted = max(1, min(self._free_places(), chunks)) - self.counts()["starting"]
        for _ in range(min(room, wanted)):
            worker = _Worker(next(self._indices), since=self._now())
            self._workers.append(worker)
            self._spawn(self._join(worker))

    async def _join(self, worker: _Worker) -> None:
        """Start one more actor, or do without: the run's retries are for those that it needs."""
        try:
            await result(self._make(worker).setup.remote())
        except (*LOST, RaypolyError):
            if worker in self._workers:  # else it was not needed any more
                self._grown_until = self._now() + _REFUSED_SECONDS
                self._remove(worker)
            return
        worker.since = self._now()
        self._note(worker, ready=True)
        self._count_workers()
        self._dispatch()

    def _free_places(self) -> int:
        """How many more actors the cluster has CPUs for now."""
        return int(ray.available_resources().get("CPU", 0.0) / max(self._options.get("num_cpus", 0.0), 0.01))

    def _remove(self, worker: _Worker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            self._note(worker, ready=False)
            self._count_workers()
        self._end(worker)

    def _count_workers(self) -> None:
        """Tell the queue how many there are. One that is asked for and may never come takes over from no other."""
        self._queue.workers = sum(worker.ready or worker.index < self._config.workers for worker in self._workers)

    def _end(self, worker: _Worker) -> None:
        if worker.actor is not None:
            ray.kill(worker.actor)
            worker.actor = None

    def _look_later(self) -> None:
        if not self._stopped and self._look is None and (self._flights or len(self._workers) > self._config.workers):
            self._look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_around)

    def _look_around(self) -> None:
        """Give back actors that idle, and give chunks that crawl to idle actors as well."""
        self._look = None
        for worker in reversed(self._workers[self._config.workers :]):
            if not worker.chunks and not self._queue.waiting and self._now() - worker.since > self._config.idle_seconds:
                self._remove(worker)
        if self._idle and not self._queue.waiting:
            paces = sorted(worker.pace for worker in self._workers if worker.pace is not None)
            median = paces[(len(paces) - 1) // 2] if paces else None
            crawling = [flight for flight in self._flights if self._crawls(flight, median)]
            for flight, worker in zip(crawling, self._idle, strict=False):
                flight.doubled = True
                self._send(_Flight(flight.chunk, worker, self._now(), doubled=True))
        if self._queue.waiting:
            self._dispatch()
        self._look_later()

    def _crawls(self, flight: _Flight, median: float | None) -> bool:
        """Whether another actor should have it too: it takes longer than its programs may, or do at `median` pace."""
        if flight.doubled or flight.chunk.calibrates:
            return False
        pace, programs = flight.worker.pace, len(flight.chunk.programs)
        allowed = 2 * programs * self._config.cpu_seconds_per_program
        if pace is not None and median is not None and pace > _SLOW * median:
            allowed = _SLOW * programs * median
        return self._now() - flight.since > max(_LEAST_CRAWL, allowed)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
