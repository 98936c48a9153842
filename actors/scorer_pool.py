"""`ScorerPool`, the scorer actors' client in the driver: it gives them programs (`scorer_actors.py` has the actors).

    pool = ScorerPool(ScorerConfig(workers=2, max_workers=8), {"num_cpus": 1})
    await pool.start()
    verdicts = await pool.score(problem, ["def f(n): ...", None])

Programs of all groups wait in one queue (`raypoly/verifier/program_queue.py`), the most urgent first. Short programs
travel in small chunks; others alone, each to an idle actor, so that a slow program delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError

from actors.calls import LOST, CallContext, node_died, reason, result
from actors.scorer_actors import LOOK_SECONDS, SUITE_CHARACTERS, SUITES, ScorerActors, ScorerWorker, now
from raypoly.core.caches import LRUCache
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests, IsolationMissing, OutOfRetries, RaypolyError, SandboxError
from raypoly.core.values import WITHOUT_TESTS, Problem, TestSuite, Verdict
from raypoly.verifier.program_queue import Chunk, ProgramQueue, QueuedProgram

CHUNK = 8
"""Short programs in one chunk, at most."""
_IN_FLIGHT = 2  # chunks of short programs at one actor: one runs, the next waits there
# CPU time of a chunk, at most, by the moving average: the way to an actor (1 to 2 ms) is worth sharing, and none waits
# long for another.
_SHORT_SECONDS = 0.05
_NEWEST = 0.1
AFTER_ALL = 2**31
"""The `order` of programs that are not urgent."""
_SHORT_SUITE = 32 << 10  # characters of a suite that travels with each chunk: the object store takes longer (3 ms)
_SLOW = 3.0  # an actor, or a chunk, is slow that takes so many times as long for a program as the pool does
_LEAST_CRAWL = 1.0


@dataclass(eq=False)
class _Flight:
    chunk: Chunk
    worker: ScorerWorker
    since: float
    doubled: bool = False


class ScorerPool:
    """The scorer actors' client."""

    actors_class: Callable[..., ScorerActors] = ScorerActors

    def __init__(
        self,
        config: ScorerConfig,
        options: dict[str, Any],
        cache_size: int = 100_000,
        context: CallContext | None = None,
    ) -> None:
        self._config = config
        self._context = context or CallContext()
        self._queue = ProgramQueue(config.workers, True, self._settled, cache_size)
        self._futures: dict[QueuedProgram, asyncio.Future[None]] = {}
        self._suites = LRUCache[str, Any](SUITES, SUITE_CHARACTERS)
        self._actors = self.actors_class(config, options, self._context, self._counted, self._dispatch)
        self._flights: dict[_Flight, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._look: asyncio.TimerHandle | None = None
        self._program_seconds = _SHORT_SECONDS
        self._error: RaypolyError | None = None
        self._stopped = False
        self.programs_run = 0
        """Programs that a sandbox ran; cache hits don't count."""

    @property
    def programs(self) -> ProgramQueue:
        """All that were given, and what became of them."""
        return self._queue

    @property
    def actors(self) -> dict[str, Any]:
        return self._actors.handles

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    def counts(self) -> dict[str, int]:
        """Numbers of actors by what they do."""
        ready, idle = len(self._actors.ready), len(self._actors.idle)
        return {"busy": ready - idle, "idle": idle, "starting": self._actors.starting}

    async def start(self) -> None:
        """Raises `IsolationMissing` where programs can't be confined."""
        await self._actors.start()

    async def score(
        self, problem: Problem, codes: Sequence[str | None], order: int = 0, partly: bool = False
    ) -> list[Verdict]:
        """Verdicts in order. Low `order`s run first. Raises `BrokenTests` where the tests can't be run, `SandboxError`
        where the sandbox failed for good: on one program, or, `partly`, on all; then the others' verdict is `infra`."""
        if problem.tests.kind == "none":  # needs no actor
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
        some = partly and any(program.verdict is not None for program in programs)
        for program in programs:
            if program.error is not None and not (some and type(program.error) is SandboxError):
                raise program.error
        return [program.verdict or Verdict("infra", 0, 0, 0.0, str(program.error)) for program in programs]

    def stop(self) -> None:
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()
        if self._look is not None:
            self._look.cancel()
        self._actors.stop()

    def _counted(self, workers: int) -> None:
        self._queue.workers = workers

    def _settled(self, program: QueuedProgram) -> None:
        future = self._futures.pop(program, None)
        if future is not None and not future.done():
            future.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _dispatch(self) -> None:
        if self._stopped:
            return
        refused: list[ScorerWorker] = []
        while self._queue.waiting and len(refused) < 2:  # what one worker may not run, another may
            worker = self._with_room(refused)
            if worker is None:
                break
            chunk = self._queue.take(worker.index, self._chunk_size())
            if chunk is None:
                refused.append(worker)
            else:
                self._send(_Flight(chunk, worker, now()))
        if self._queue.waiting and not refused:  # what is refused waits for a sound worker, not for one more
            self._actors.grow(-(-self._queue.waiting // self._chunk_size()))

    def _with_room(self, refused: Sequence[ScorerWorker] = ()) -> ScorerWorker | None:
        room = _IN_FLIGHT if self._program_seconds < _SHORT_SECONDS else 1
        found = next((worker for worker in self._actors.ready if worker not in refused), None)
        return found if found is not None and found.chunks < room else None

    def _chunk_size(self) -> int:
        return max(1, int(_SHORT_SECONDS / max(self._program_seconds, _SHORT_SECONDS / CHUNK)))

    def _send(self, flight: _Flight) -> None:
        self._flights[flight] = None
        self._actors.note(flight.worker, chunks=1)
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
        self._actors.note(worker, chunks=-1)
        worker.since = now()
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
            await self._actors.lost(worker, started, error)
            return
        seconds = (now() - flight.since) / len(programs)
        worker.pace = seconds if worker.pace is None else worker.pace + _NEWEST * (seconds - worker.pace)
        for program, verdict in zip(programs, verdicts, strict=True):
            self._program_seconds += _NEWEST * (verdict.cpu_seconds - self._program_seconds)
            if verdict.status == "infra":
                self._queue.again(Chunk(chunk.state, (program,)), worker.index, verdict.detail)
            else:
                self.programs_run += self._queue.finish(program, verdict)

    def _reference(self, tests: TestSuite) -> Any:
        if len(tests.source) <= _SHORT_SUITE:
            return tests
        if tests.hash in self._suites:
            return self._suites[tests.hash]
        return self._suites.put(tests.hash, ray.put(tests), len(tests.source))

    def _look_later(self) -> None:
        if not self._stopped and self._look is None and (self._flights or self._actors.grown):
            self._look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_around)

    def _look_around(self) -> None:
        # Crawling chunks go to idle actors as well: the first verdict counts.
        self._look = None
        self._actors.give_back(work_waits=self._queue.waiting > 0)
        if self._actors.idle and not self._queue.waiting:
            paces = sorted(worker.pace for worker in self._actors if worker.pace is not None)
            median = paces[(len(paces) - 1) // 2] if paces else None
            crawling = [flight for flight in self._flights if self._crawls(flight, median)]
            for flight, worker in zip(crawling, self._actors.idle, strict=False):
                flight.doubled = True
                self._send(_Flight(flight.chunk, worker, now(), doubled=True))
        if self._queue.waiting:
            self._dispatch()
        self._look_later()

    def _crawls(self, flight: _Flight, median: float | None) -> bool:
        # Whether a chunk takes longer than its programs' limits allow, or than the `median` pace.
        if flight.doubled or flight.chunk.calibrates:
            return False
        pace, programs = flight.worker.pace, len(flight.chunk.programs)
        allowed = 2 * programs * self._config.cpu_seconds_per_program
        if pace is not None and median is not None and pace > _SLOW * median:
            allowed = _SLOW * programs * median
        return now() - flight.since > max(_LEAST_CRAWL, allowed)
