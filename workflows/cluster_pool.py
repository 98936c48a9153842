"""A Ray cluster's scorers as a pool of this process: `raypoly serve` where RAY_ADDRESS is set."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import ray

from actors.calls import CallContext, Retries
from actors.scorer_pool import ScorerPool
from raypoly.core.config import Config
from raypoly.core.errors import BrokenTests, SandboxError
from raypoly.core.values import Problem, Verdict
from raypoly.verifier.local_pool import unknown_verdict
from workflows.startup.ray_cluster import connect_ray, scorer_options


class ClusterPool:
    """Scores as `LocalPool`, from any thread; its scorers are spread over the cluster's CPU nodes."""

    def __init__(self, config: Config, workers: int | None, note: Callable[[str], None]) -> None:
        """`workers`: None is as many as the cluster's CPUs. Raises `RaypolyError` without a cluster,
        `IsolationMissing` where programs can't be confined."""
        self._stack = ExitStack()
        try:
            self._stack.enter_context(connect_ray(config, "raypoly-serve"))
            count = workers or max(1, int(ray.cluster_resources().get("CPU", 1.0)))
            scorer = config.scorer.model_copy(update={"workers": count})
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
        given = list(programs)

        async def scored() -> list[Verdict]:
            return list(await asyncio.gather(*(self._one(*each) for each in given)))

        yield from self._run(scored())

    def close(self) -> None:
        self._stack.close()

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
