"""A Ray cluster's scorers as a pool of this process: `raypoly serve` and `raypoly score` where RAY_ADDRESS is set."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import ray

from actors.calls import CallContext, Retries
from actors.scorer_pool import ScorerPool
from raypoly.core import settings
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests, SandboxError
from raypoly.core.values import Problem, Verdict
from raypoly.verifier.local_pool import in_order, unknown_verdict
from workflows.startup.ray_cluster import connect_ray, scorer_options


class ClusterPool:
    """Scores as `LocalPool`, from any thread; its scorers are spread over the cluster's CPU nodes."""

    def __init__(
        self, scorer: ScorerConfig, workers: int | None, programs: int | None, note: Callable[[str], None]
    ) -> None:
        """`workers`: None is as many as the cluster's CPUs, but no more than there are `programs`, where that is known.

        Raises `RaypolyError` without a cluster, `IsolationMissing` where programs can't be confined.
        """
        config = settings.load(None)
        self._stack = ExitStack()
        try:
            self._stack.enter_context(connect_ray(config, "raypoly-verdicts"))
            count = workers or max(1, int(ray.cluster_resources().get("CPU", 1.0)))
            count = count if programs is None else max(1, min(count, programs))
            scorer = scorer.model_copy(update={"workers": count})
            self._loop = asyncio.new_event_loop()
            self._pool = ScorerPool(scorer, scorer_options(scorer), context=CallContext(Retries(note=note)))
            thread = threading.Thread(target=self._loop.run_forever, name="scorers", daemon=True)
            thread.start()
            self._stack.callback(thread.join)
            self._stack.callback(self._loop.call_soon_threadsafe, self._loop.stop)
            self._stack.callback(lambda: self._run(self._stop()))
            self._run(self._pool.start())
        except BaseException:
            self.close()
            raise

    def score(self, programs: Iterable[tuple[Problem, str | None]]) -> Iterator[Verdict]:
        """A verdict for each program, in order. `infra`: its tests can't be run, or all scorers failed."""
        return in_order(programs, self._begin, Future.done, Future.result)

    @property
    def done(self) -> int:
        """Programs with a verdict."""
        return self._pool.programs.outcomes

    @property
    def passed(self) -> int:
        return self._pool.programs.passed

    @property
    def cpu_seconds(self) -> float:
        """Of all programs that ran; repeated ones run once."""
        return self._pool.programs.cpu_seconds

    def close(self) -> None:
        self._stack.close()

    def _begin(self, problem: Problem, code: str | None) -> Future[Verdict]:
        return asyncio.run_coroutine_threadsafe(self._one(problem, code), self._loop)

    async def _one(self, problem: Problem, code: str | None) -> Verdict:
        try:
            (verdict,) = await self._pool.score(problem, [code])
        except (BrokenTests, SandboxError) as error:
            return unknown_verdict(error)
        return verdict

    async def _stop(self) -> None:
        self._pool.stop()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
