"""The learner's client in the driver: one actor a rank, started, called and stopped together (a worker group).

    learners = LearnerGroup(config, model, options, context)
    standing = await learners.start(checkpoint.reader)
    await learners.call("learn", lambda rank: rank.accumulate.remote(rows))       # every rank; rank 0's answer

Ranks wait for each other within a call. If one is lost the others can't go on: catch `LOST`, and `start` new actors at
another port, on the nodes that are there then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import ray

from actors.calls import LOST, START, CallContext, result
from actors.learner import WRITING, LearnerActor, Rendezvous, Standing
from actors.model_files import ModelFiles
from actors.watched import GROUP
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.run.store.shards import ShardReader

T = TypeVar("T")

_NEIGHBOUR_SECONDS = 60.0
"""A rank may fail by a dead neighbour before Ray reports the death, by so many seconds at most."""


class LearnerGroup:
    """All ranks of one learner. Used from one event loop."""

    def __init__(
        self,
        config: Config,
        model: ModelFiles,
        options: Callable[[int], dict[str, Any]],
        context: CallContext,
    ) -> None:
        """`options`: Ray's actor options by rank."""
        self._config, self._model, self._options = config, model, options
        self._context, self.ranks = context, config.train.ranks
        self._actors: list[Any] = []
        self.started = 0
        """Starts so far."""

    @property
    def actors(self) -> dict[str, Any]:
        """The actors' handles by name."""
        return {self._who(rank): actor for rank, actor in enumerate(self._actors)}

    async def start(self, checkpoint: ShardReader | None) -> Standing:
        """Start new actors with the starting model, or with a checkpoint of any number of ranks. Old ones are ended."""
        self.stop()
        self._actors = []
        self.started += 1
        actor = ray.remote(concurrency_groups={WRITING: 1, GROUP: 1})(LearnerActor)
        for rank in range(self.ranks):
            name = self._who(rank) if self.started == 1 else f"{self._who(rank)}-{self.started}"
            self._actors.append(actor.options(name=name, **self._options(rank)).remote(self._model, self._config))
        if self.ranks == 1:
            return await self.call(START, lambda rank: rank.setup.remote(checkpoint))
        first = self._actors[0]
        host, port = await self._one(START, self._who(0), first, first.meeting.remote())
        places = iter([Rendezvous(rank, self.ranks, host, port) for rank in range(self.ranks)])
        return await self.call(START, lambda rank: rank.setup.remote(checkpoint, next(places)))

    async def call(self, stage: str, ask: Callable[[Any], Awaitable[T]]) -> T:
        """Call every rank; rank 0's answer when all have answered. Raises one of `LOST` where a rank is lost."""
        return (await self.each(stage, ask))[0]

    async def reference(self, stage: str, ask: Callable[[Any], Any]) -> Any:
        """Call every rank; the reference to rank 0's answer, owned by this process."""
        asked: list[Any] = []

        def keep(rank: Any) -> Any:
            asked.append(ask(rank))
            return asked[-1]

        await self.each(stage, keep)
        return asked[0]

    async def each(
        self, stage: str, ask: Callable[[Any], Awaitable[T]], actors: Mapping[str, Any] | None = None
    ) -> Sequence[T]:
        """Call every rank, or the ranks of earlier `actors`; all answers, in rank order. Raises as `call`."""
        asked = self.actors if actors is None else actors
        tasks = [asyncio.ensure_future(self._one(stage, who, actor, ask(actor))) for who, actor in asked.items()]
        try:
            return await asyncio.gather(*tasks)
        except (*LOST, RaypolyError):
            raise
        except Exception as error:
            lost = await _lost(tasks)
            if lost is None:
                raise
            raise lost from error
        finally:
            for task in tasks:
                task.cancel()

    def shared(self, value: T) -> T:
        """An argument for every rank: one copy in the object store where there are several."""
        return value if self.ranks == 1 else ray.put(value)

    def stop(self) -> None:
        """End all ranks."""
        for actor in self._actors:
            ray.kill(actor)

    async def _one(self, stage: str, who: str, actor: Any, answer: Awaitable[T]) -> T:
        with self._context.in_flight.waiting(stage, who, actor):
            return await result(answer)

    def _who(self, rank: int) -> str:
        return "learner" if self.ranks == 1 else f"learner-{rank}"


async def _lost(tasks: Sequence[asyncio.Task[Any]]) -> BaseException | None:
    """The loss of a rank, if Ray reports one in time; without one the others would wait for ever."""
    pending = {task for task in tasks if not task.done()}
    until = asyncio.get_running_loop().time() + _NEIGHBOUR_SECONDS
    while True:
        errors = (task.exception() for task in tasks if task.done() and not task.cancelled())
        lost = next((error for error in errors if isinstance(error, LOST)), None)
        left = until - asyncio.get_running_loop().time()
        if lost is not None or not pending or left <= 0:
            return lost
        _, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
