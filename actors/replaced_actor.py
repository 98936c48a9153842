"""The client of one actor that is replaced when it is lost."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import ray

from actors.calls import LOST, CallContext, result

T = TypeVar("T")


class ReplacedActor(ABC):
    """Calls of a lost actor are made again of its replacement. Subclasses write `start`."""

    def __init__(self, who: str, context: CallContext | None = None) -> None:
        self._who, self._context = who, context or CallContext()
        self._actor: Any = None
        self._started = 0
        """Actors started so far."""
        self._lock = asyncio.Lock()

    @abstractmethod
    async def start(self) -> None:
        """Set `_actor` to a new one that is ready, and count it. The first call does so where nobody has."""

    @property
    def actors(self) -> dict[str, Any]:
        """The actor's handle by its name."""
        return {} if self._actor is None else {self._who: self._actor}

    def stop(self) -> None:
        """End the actor."""
        if self._actor is not None:
            ray.kill(self._actor)

    @property
    def _next_name(self) -> str:
        """Of the actor that was counted last."""
        return self._who if self._started == 1 else f"{self._who}-{self._started}"

    async def _call(self, stage: str, ask: Callable[[Any], Awaitable[T]]) -> T:
        async with self._lock:
            if self._actor is None:
                await self.start()
        while True:
            generation = self._started
            try:
                with self._context.in_flight.waiting(stage, self._who, self._actor):
                    return await result(ask(self._actor))
            except LOST as error:
                await self._replace(generation, error)

    async def _replace(self, generation: int, error: BaseException) -> None:
        """A new actor, once for all the calls that the old one took with it."""
        async with self._lock:
            if self._started == generation:
                self.stop()
                await self._context.retries.again(f"The {self._who}", error)
                await self.start()
