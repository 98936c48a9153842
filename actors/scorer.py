"""The scorer actors, each with one sandbox, and `ScorerPool`, their client in the driver: queue, cache, retries.

    pool = ScorerPool(ScorerConfig(workers=2), {"num_cpus": 0.01})
    await pool.start()
    verdicts = await pool.score(problem, ["def f(n): ...", None])

Programs of all groups wait in one queue, the most urgent first. Short programs travel in small chunks, two in flight an
actor. Where programs are not short, each travels alone to an idle actor, so that a slow program delays no other. A
program of a problem runs once in the pool's lifetime, unless its verdict may depend on the moment. A problem with a
reference solution is calibrated once, before its first chunk. If the sandbox itself fails, the program is tried on
another actor; the failure never becomes a verdict of the program.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError

from actors.calls import LOST, START, CallContext, reason, result
from actors.watched import WATCHED, Watched
from raypoly.config import ScorerConfig
from raypoly.errors import RaypolyError, SandboxError
from raypoly.lru_cache import LRUCache
from raypoly.sandbox import Sandbox
from raypoly.values import Problem, TestSuite, Verdict

CHUNK = 8
"""The most short programs that travel together."""
_IN_FLIGHT = 2
"""Chunks of short programs that an actor has at once: one runs, the next waits there."""
_SHORT_SECONDS = 0.05
"""The most CPU time of the programs of one chunk, by the moving average: their way to an actor (1 to 2 ms) is worth
sharing, and none waits long for another. Programs are short while one alone takes less."""
_NEWEST = 0.1
"""Weight of the newest program in that average."""
AFTER_ALL = 2**31
"""An `order` behind all others: for programs that are not urgent."""
_RETRIES = 3
"""How often a program is tried again after its sandbox failed or its actor was lost."""
_SHORT_SUITE = 32 << 10
"""A suite of at most so many characters travels with each chunk: the object store takes longer (3 ms)."""
_SUITES = 256
"""The most longer suites kept by hash, in the object store and in each actor."""
_SUITE_CHARACTERS = 256 << 20
"""Of their sources in all, at most."""
_VERDICT_CHARACTERS = 256 << 20
"""Of the programs whose verdicts are kept, in all, at most."""

Key = tuple[str, str, str, str | None]
"""Cache key of a verdict: hash of the tests, prelude, entry point, code."""


class Scorer(Watched):
    """Runs chunks of programs of one problem in its sandbox."""

    def __init__(self, limits: ScorerConfig, index: int) -> None:
        self._limits, self._index = limits, index
        self._suites = LRUCache[str, TestSuite](_SUITES, _SUITE_CHARACTERS)

    def __repr__(self) -> str:
        return f"Scorer({self._index})"

    def setup(self) -> None:
        """Start the sandbox. Raises `IsolationMissing`: the call fails, the actor lives on."""
        self._sandbox = Sandbox(self._limits, self._limits.evidence)

    def score(self, problem: Problem, suite: tuple[str, Any], codes: Sequence[str | None]) -> list[Verdict]:
        """Verdicts in order. `problem` has no tests; `suite` is their hash, and the tests or a reference to them."""
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


@dataclass(eq=False)
class _Job:
    """One program whose verdict is awaited."""

    key: Key
    done: asyncio.Future[Verdict]
    failures: int = 0


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Programs of one problem that travel together."""

    problem: Problem
    """Without its tests."""
    suite: tuple[str, Any]
    jobs: tuple[_Job, ...]
    turn: tuple[int, int]
    """Its position in the queue: the lowest goes first."""
    avoid: int | None = None
    """The index of the worker that failed at it."""


@dataclass(eq=False)
class _Worker:
    """One worker of the pool. A lost actor is replaced."""

    index: int
    actor: Any = None
    started: int = 0
    measuring: int = 0
    """Problems in calibration."""
    chunks: int = 0
    """In flight."""
    name: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ScorerPool:
    """Scores programs on `config.workers` actors, started with Ray's `options` each."""

    def __init__(
        self,
        config: ScorerConfig,
        options: dict[str, Any],
        cache_size: int = 100_000,
        context: CallContext | None = None,
    ) -> None:
        self._config, self._options = config, options
        self._context = context or CallContext()
        self._verdicts = LRUCache[Key, Verdict](cache_size, _VERDICT_CHARACTERS)
        self._waiting: dict[Key, _Job] = {}
        self._suites = LRUCache[str, Any](_SUITES, _SUITE_CHARACTERS)
        self._submitting: set[asyncio.Task[None]] = set()
        self._references: dict[tuple[str, str, str], asyncio.Task[float | None]] = {}
        self._queue: list[_Chunk] = []
        """By their turns, ascending."""
        self._numbers = itertools.count()
        self._changed = asyncio.Condition()
        self._workers = [_Worker(index) for index in range(config.workers)]
        self._tasks: list[asyncio.Task[None]] = []
        self._program_seconds = _SHORT_SECONDS
        self.programs_run = 0
        """Programs that ran in a sandbox; cache hits don't count."""

    @property
    def actors(self) -> dict[str, Any]:
        """The actors' handles by their names."""
        return {worker.name: worker.actor for worker in self._workers if worker.actor is not None}

    async def start(self) -> None:
        """Start the actors. Raises `IsolationMissing` where programs can't be confined."""
        await asyncio.gather(*(self._start(worker) for worker in self._workers))
        self._tasks = [asyncio.create_task(self._serve(worker)) for worker in self._workers for _ in range(_IN_FLIGHT)]

    async def score(self, problem: Problem, codes: Sequence[str | None], order: int = 0) -> list[Verdict]:
        """One verdict a program, in order, never `infra`. Waiting programs with the lowest `order` run first.

        Raises `SandboxError` where the sandbox failed for good, `BrokenTests` where the tests can't be run.
        """
        keys: list[Key] = [(problem.tests.hash, problem.prelude, problem.entry_point, code) for code in codes]
        known = {key: self._verdicts[key] for key in keys if key in self._verdicts}
        asked = {key: self._waiting[key] for key in keys if key in self._waiting}
        loop = asyncio.get_running_loop()
        new = {key: _Job(key, loop.create_future()) for key in keys if key not in known and key not in asked}
        self._waiting.update(new)
        if new:  # its own task: it goes on when this caller is cancelled, as others may wait for the same programs
            task = asyncio.create_task(self._submit(problem, list(new.values()), order))
            self._submitting.add(task)
            task.add_done_callback(self._submitting.discard)
        jobs = asked | new
        if jobs:
            # wait, not gather: cancelling this caller must not cancel what others wait for
            await asyncio.wait([job.done for job in jobs.values()])
        for error in [job.done.exception() for job in jobs.values()]:
            if error is not None:
                raise error
        return [known[key] if key in known else jobs[key].done.result() for key in keys]

    def stop(self) -> None:
        """End the actors and cancel all waits for verdicts."""
        for task in [*self._tasks, *self._submitting, *self._references.values()]:
            task.cancel()
        for job in self._waiting.values():
            job.done.cancel()
        self._waiting.clear()
        for worker in self._workers:
            if worker.actor is not None:
                ray.kill(worker.actor)

    async def _submit(self, problem: Problem, jobs: list[_Job], order: int) -> None:
        """Calibrate the problem if there is a program to run, and queue its programs."""
        suite = (problem.tests.hash, self._reference(problem.tests))
        bare = replace(problem, tests=replace(problem.tests, source=""))
        try:
            codes = [job.key[3] is not None for job in jobs]
            seconds = await self._calibrated(bare, suite) if any(codes) else None
            bare = replace(bare, reference_seconds=seconds, solution="")
        except Exception as error:  # noqa: BLE001 - whoever waits for these programs gets it
            for job in jobs:
                self._fail(job, error)
            return
        size = max(1, int(_SHORT_SECONDS / max(self._program_seconds, _SHORT_SECONDS / CHUNK)))
        async with self._changed:
            for i in range(0, len(jobs), size):
                self._enqueue(_Chunk(bare, suite, tuple(jobs[i : i + size]), (order, next(self._numbers))))
            self._changed.notify_all()

    def _enqueue(self, chunk: _Chunk) -> None:
        bisect.insort(self._queue, chunk, key=lambda waiting: waiting.turn)

    async def _calibrated(self, problem: Problem, suite: tuple[str, Any]) -> float | None:
        """The problem's reference time: its own, or measured once in the pool's lifetime where it has a solution."""
        if problem.reference_seconds is not None or not problem.solution:
            return problem.reference_seconds
        key = (suite[0], problem.prelude, problem.solution)
        if key not in self._references:
            self._references[key] = asyncio.create_task(self._measure(problem, suite))
        try:
            return await asyncio.shield(self._references[key])
        except RaypolyError:
            self._references.pop(key, None)  # whoever asks again has it measured again
            raise

    async def _measure(self, problem: Problem, suite: tuple[str, Any]) -> float | None:
        """Ask one worker, and another where that one fails."""
        worker = min(self._workers, key=lambda worker: worker.measuring)
        for failures in range(1 + _RETRIES):
            started, worker.measuring = worker.started, worker.measuring + 1
            try:
                with self._context.in_flight.waiting("score", f"scorer-{worker.index}", worker.actor):
                    seconds: float | None = await result(worker.actor.reference_seconds.remote(problem, suite))
                return seconds
            except LOST as error:
                await self._replace(worker, started, error)
            except SandboxError:
                if failures == _RETRIES:
                    raise
            finally:
                worker.measuring -= 1
            worker = self._workers[(worker.index + 1) % len(self._workers)]
        raise SandboxError(f"The workers that measured the solution of problem {problem.id} were lost, one by one.")

    def _reference(self, tests: TestSuite) -> Any:
        """The suite itself if it is short, else its reference in the object store."""
        if len(tests.source) <= _SHORT_SUITE:
            return tests
        if tests.hash in self._suites:
            return self._suites[tests.hash]
        return self._suites.put(tests.hash, ray.put(tests), len(tests.source))

    async def _serve(self, worker: _Worker) -> None:
        while True:
            chunk = await self._take(worker)
            try:
                await self._run(worker, chunk)
            except (RayError, RaypolyError) as error:
                for job in chunk.jobs:
                    self._fail(job, error)
            finally:
                worker.chunks -= 1

    async def _take(self, worker: _Worker) -> _Chunk:
        """Wait for the first chunk that this worker may run. It gets none behind a program that may be slow."""
        async with self._changed:
            while True:
                short = self._program_seconds < _SHORT_SECONDS
                for chunk in self._queue if short or not worker.chunks else ():
                    if chunk.avoid != worker.index or len(self._workers) == 1:
                        self._queue.remove(chunk)
                        worker.chunks += 1
                        return chunk
                await self._changed.wait()

    async def _run(self, worker: _Worker, chunk: _Chunk) -> None:
        jobs = [job for job in chunk.jobs if not job.done.done()]
        started, codes = worker.started, [job.key[3] for job in jobs]
        try:
            with self._context.in_flight.waiting("score", f"scorer-{worker.index}", worker.actor):
                verdicts: list[Verdict] = await result(worker.actor.score.remote(chunk.problem, chunk.suite, codes))
        except LOST as error:
            await self._again(worker, chunk, jobs, f"its worker was lost ({reason(error)})")
            await self._replace(worker, started, error)
            return
        self.programs_run += len(verdicts)
        for job, verdict in zip(jobs, verdicts, strict=True):
            self._program_seconds += _NEWEST * (verdict.cpu_seconds - self._program_seconds)
            if verdict.status == "infra":
                await self._again(worker, chunk, (job,), verdict.detail)
            else:
                self._finish(job, verdict)

    async def _again(self, worker: _Worker, chunk: _Chunk, jobs: Sequence[_Job], reason: str) -> None:
        """Put programs back at their position in the queue, each alone, for another worker."""
        for job in jobs:
            job.failures += 1
            if job.failures > _RETRIES:
                self._fail(
                    job,
                    SandboxError(
                        f"The sandbox failed {job.failures} times on a program of problem {chunk.problem.id}:"
                        f" {reason.rstrip('.')}. Look into the scorer's log."
                    ),
                )
        left = [job for job in jobs if not job.done.done()]
        async with self._changed:
            for job in left:
                self._enqueue(replace(chunk, jobs=(job,), avoid=worker.index))
            self._changed.notify_all()

    def _finish(self, job: _Job, verdict: Verdict) -> None:
        self._waiting.pop(job.key, None)
        if not job.done.done():
            job.done.set_result(verdict)
        if verdict.repeatable:  # a timeout by the clock may be due to a busy machine: measure again next time
            self._verdicts.put(job.key, verdict, len(job.key[3] or ""))

    def _fail(self, job: _Job, error: Exception) -> None:
        self._waiting.pop(job.key, None)
        if not job.done.done():
            job.done.set_exception(error)

    async def _start(self, worker: _Worker) -> None:
        """Start an actor, and another one if it is lost meanwhile."""
        while True:
            worker.started += 1
            worker.name = f"scorer-{worker.index}" + (f"-{worker.started}" if worker.started > 1 else "")
            try:
                actor = ray.remote(**WATCHED)(Scorer).options(name=worker.name, **self._options)
                worker.actor = actor.remote(self._config, worker.index)
                with self._context.in_flight.waiting(START, f"scorer-{worker.index}", worker.actor):
                    await result(worker.actor.setup.remote())
                return
            except LOST as error:
                ray.kill(worker.actor)
                await self._context.retries.again(f"Scorer {worker.index}", error)

    async def _replace(self, worker: _Worker, started: int, error: BaseException) -> None:
        """Start a new actor, once for all chunks that were lost with the old one."""
        async with worker.lock:
            if worker.started == started:
                ray.kill(worker.actor)
                await self._context.retries.again(f"Scorer {worker.index}", error)
                await self._start(worker)
