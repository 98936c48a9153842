"""Weight sync: sends new weights from the learner to an engine, by a transport of `raypoly.engines.transfer` or as a
Ray object.

The driver makes the calls of both sides, so it notices a lost side while the other one waits. A collective waits for
its partner for ever: the side that is left is ended too, and both are replaced and get the current weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ray.exceptions import ObjectLostError

from actors.calls import LOST
from actors.engine_actor import EngineClient
from raypoly.engines.transfer import COLLECTIVE
from raypoly.errors import TransferBroken

_GRACE_SECONDS = 5.0
"""How long one side of a collective may take to notice by itself that the other one failed."""

Links = dict[str, tuple[int, int]]
"""Which actors are connected: by the engine's first name, the learner's and the engine's count of starts."""


class WeightSource(Protocol):
    """The learner as a source of weights. `peer` names the engine."""

    @property
    def started(self) -> int:
        """Learner actors started so far."""
        ...

    async def listen(self, transport: str, peer: str) -> Any: ...

    async def connect(self, peer: str) -> None: ...

    async def offer(self, transport: str, peer: str) -> Any:
        """A reference to the parcel. It is useless where `started` has changed since `connect`."""
        ...

    async def send(self, peer: str) -> None: ...

    async def withdraw(self, peer: str) -> None: ...

    async def release(self) -> None:
        """Free the memory that the learner does not need until its next step."""
        ...

    def stop(self) -> None: ...


class WeightDelivery:
    """One version of the weights, for any number of engines and their replacements."""

    def __init__(self, source: WeightSource, version: int, transport: str, links: Links) -> None:
        """`links` is kept over versions."""
        self._source, self._version, self._transport, self._links = source, version, transport, links
        self._object: Any = None
        self._turn = asyncio.Lock()

    async def to(self, engine: EngineClient) -> None:
        """Return when the engine has the weights. Raises the errors that `EngineClient.retry` handles."""
        if self._transport == "objects":
            await self._as_object(engine)
            return
        async with self._turn:  # the learner serves one engine at a time
            peer, parcel = engine.first_name, await self._connected(engine)
            receive = engine.call("update", engine.actor.receive.remote(parcel, self._version))
            try:
                if self._transport in COLLECTIVE:
                    await both(self._source.send(peer), self._source.stop, receive, engine.stop)
                else:
                    await receive
            finally:
                await self._source.withdraw(peer)

    async def _as_object(self, engine: EngineClient) -> None:
        async with self._turn:
            if self._object is None:
                self._object = await self._source.offer(self._transport, engine.first_name)
        try:
            await engine.call("update", engine.actor.receive.remote(self._object, self._version))
        except ObjectLostError:
            self._object = None
            raise

    async def _connected(self, engine: EngineClient) -> Any:
        """The parcel, after the learner's and the engine's current actors are connected."""
        peer = engine.first_name
        while True:
            if self._links.get(peer) != (self._source.started, engine.started):
                info = await self._source.listen(self._transport, peer)
                started = self._source.started
                connect = engine.call("update", engine.actor.connect.remote(info))
                await both(self._source.connect(peer), self._source.stop, connect, engine.stop)
                self._links[peer] = (started, engine.started)
            parcel = await self._source.offer(self._transport, peer)
            if self._links[peer][0] == self._source.started:
                return parcel


async def both(
    one: Coroutine[Any, Any, None],
    end_one: Callable[[], None],
    other: Coroutine[Any, Any, None],
    end_other: Callable[[], None],
    grace: float = _GRACE_SECONDS,
) -> None:
    """Run both sides of a collective. If one fails, end the other one after `grace` seconds and raise the error."""
    sides = {asyncio.ensure_future(one): end_one, asyncio.ensure_future(other): end_other}
    try:
        _, waiting = await asyncio.wait(sides, return_when=asyncio.FIRST_EXCEPTION)
        if waiting:
            _, waiting = await asyncio.wait(waiting, timeout=grace)
        for side in waiting:
            sides[side]()
        await asyncio.wait(sides)
    finally:
        for side in sides:
            side.cancel()
    errors = [error for side in sides if (error := side.exception()) is not None]
    # a side's own error tells more than the other side's loss of its partner
    for error in sorted(errors, key=lambda error: isinstance(error, (*LOST, TransferBroken))):
        raise error
