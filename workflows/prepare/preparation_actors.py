"""Ray, scorers and engines of a preparation or evaluation, each started when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import ray

from actors.calls import CallContext, InFlightCalls, Retries
from actors.generator import Generator
from actors.model_files import ModelFiles
from actors.scorer_pool import ScorerPool
from raypoly import data as problems
from raypoly.core.config import Config, GeneratorConfig, ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.planning.placement import ON_CPU, Placement
from raypoly.run.store import Lease, Store
from workflows.durability.journal import Journal
from workflows.liveness.ray_liveness import RayLiveness, ray_gone
from workflows.liveness.ray_output import RayMessages
from workflows.liveness.shutdown import Shutdown
from workflows.liveness.watchdog import Stacks, Watchdog
from workflows.startup.ray_cluster import connect_ray, ray_is_up, scorer_options
from workflows.startup.resources import ActorResources
from workflows.startup.starting_model import starting_model, with_copy_for_other_nodes


class Workers:
    """The given stack stops them."""

    def __init__(
        self,
        stack: AsyncExitStack,
        config: Config,
        name: str,
        store: Store,
        lease: Lease,
        journal: Journal,
        ending: Shutdown,
        note: Callable[[str], None],
    ) -> None:
        self._stack, self._name, self._store, self._lease = stack, name, store, lease
        self._journal, self._ending, self._note = journal, ending, note
        self._config = config
        self.context = CallContext(Retries(config.run.retries, note), InFlightCalls())
        self._scorers: ScorerPool | None = None
        self._generator: Generator | None = None
        self._model: ModelFiles | None = None
        self._watchdog: Watchdog | None = None

    async def scorers(self) -> ScorerPool:
        self.connect()
        if self._scorers is None:
            self._scorers = ScorerPool(self._config.scorer, scorer_options(self._config.scorer), context=self.context)
            self._stack.callback(self._scorers.stop)
            await self._scorers.start()
        return self._scorers

    async def generator(self) -> Generator:
        """With the base model's weights."""
        model = await self.model()
        self.connect()
        if self._generator is None:
            places, files = _places(self._config.generator), with_copy_for_other_nodes(model)
            self._generator = Generator(self._config, files, places.engine, self.context, places.placement)
            self._stack.callback(self._generator.stop)
            await self._generator.start()
        return self._generator

    async def model(self) -> ModelFiles:
        """Ray makes the tiny model if it is not cached."""
        if self._model is None:
            if self._config.model.path is None:
                self.connect()
            puzzles = await asyncio.to_thread(problems.build_problem_set, ProblemsConfig())
            self._model = await starting_model(self._config, puzzles)
        return self._model

    def connect(self) -> None:
        """Connect Ray, and watch over it and the actors."""
        if self._watchdog is not None:
            return
        enter = self._stack.enter_context
        enter(connect_ray(self._config, self._name))
        enter(RayMessages(self._store.workspace / "ray.log", self._note))
        self._note(ray_is_up(self._config))
        ending, flushed, release = self._ending, self._journal.flush, self._lease.release
        enter(RayLiveness(lambda why: ending.end_without_ray(ray_gone(why), flushed, release)))
        seconds, stacks = self._config.run.stall_seconds, Stacks(self._store)
        self._watchdog = enter(
            Watchdog(seconds, self.context.in_flight, self._actors, stacks, self._note, failed=ending.request)
        )

    def step_done(self) -> None:
        """The watchdog's next stall counts as the first."""
        if self._watchdog is not None:
            self._watchdog.step_done()

    def _actors(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in (self._scorers, self._generator):
            found |= part.actors if part is not None else {}
        return found


def _places(config: GeneratorConfig) -> ActorResources:
    """A GPU for each engine, if there are any. Raises `UsageError` for too few."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if not gpus or config.placement == "cpu":
        return ActorResources(ON_CPU, gpus)
    if config.engines > gpus:
        raise UsageError(f"generator.engines={config.engines}, but the cluster has {gpus} GPUs: ask for fewer engines.")
    return ActorResources(Placement("split", "objects", on_gpu=True), gpus)
