"""Weight sync: sends new weights from the learner to an engine, by a transport of `raypoly.rollouts.engines.transfer`
or as a Ray object, and the proof that they arrived.

The proof is identity. The engine hashes the weights that it has (`raypoly/learner/weight_hash.py`), the learner hashes
its own in the engine's dtype, and every name must be there with the same hash: a stale head, a half update or one
wrong bit stops the run. A replacement proves its weights as the engine before it did.

The driver makes the calls of both sides, so it notices a lost side while the other one waits. A collective waits for
its partner for ever: the side that is left is ended too, and both are replaced and get the current weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ray.exceptions import ObjectLostError

from actors.calls import LOST
from actors.engine_actor import EngineClient
from raypoly.core.errors import TransferBroken, WeightsMismatch
from raypoly.rollouts.engines.transfer import COLLECTIVE

_GRACE_SECONDS = 5.0
"""How long one side of a collective may take to notice by itself that the other one failed."""

_NAMED = 3
"""The most wrong tensors that an error names."""

Links = dict[str, tuple[int, int]]
"""Which actors are connected: by the engine's first name, the learner's and the engine's count of starts."""


class WeightSource(Protocol):
    """The learner as a source of weights. `peer` names the engine."""

    @property
    def started(self) -> int:
        """Learner actors started so far."""
        ...

    def lent(self) -> AbstractContextManager[None]:
        """Inside, the weights do not change."""
        ...

    async def listen(self, transport: str, peer: str) -> Any: ...

    async def connect(self, peer: str) -> None: ...

    async def offer(self, transport: str, peer: str) -> Any:
        """A reference to the parcel. It is useless where `started` has changed since `connect`."""
        ...

    async def send(self, peer: str) -> None: ...

    async def withdraw(self, peer: str) -> None: ...

    async def weight_hashes(self) -> Mapping[str, str]:
        """`weight_hash` of the current weights in the engines' dtype, by name."""
        ...

    async def release(self) -> None:
        """Free the memory that the learner does not need until its next step."""
        ...

    def stop(self) -> None: ...


class WeightDelivery:
    """One version of the weights, for any number of engines and their replacements."""

    def __init__(self, source: WeightSource, version: int, transport: str, links: Links) -> None:
        """`links` is kept over versions."""
        self._source, self._version, self._transport, self._links = source, version, transport, links
        self._object: tuple[Any, int] | None = None
        """A reference, and `started` of the learner whose weights these are."""
        self._hashes: tuple[asyncio.Future[Mapping[str, str]], int] | None = None
        """The same of its hashes."""
        self._turn = asyncio.Lock()

    async def to(self, engine: EngineClient) -> None:
        """Return when the engine has the weights and has proved it, if it can.

        Raises the errors that `EngineClient.retry` handles, and `WeightsMismatch` where it has others.
        """
        send = self._as_object if self._transport == "objects" else self._by_transport
        with self._source.lent():
            while not await self._proved(engine, await send(engine)):
                self._object = self._hashes = None

    async def _proved(self, engine: EngineClient, started: int) -> bool:
        """Compare hashes by name; the learner's are asked for once. `started`: of the learner that sent the weights.

        False where another learner may have answered: on a GPU its replay may have given other weights.
        """
        hashes = self._source_hashes(started)
        got = await engine.call("update", engine.actor.weight_hashes.remote())
        wrong = [] if got is None else differing_weights(await hashes, got)
        engine.proved = got is not None and not wrong
        if wrong and self._source.started != started:
            return False
        if wrong:
            more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            raise WeightsMismatch(
                f"After the update to version {self._version} the engine {engine.kind} ({engine.name}) has other "
                f"weights than the learner: {', '.join(wrong[:_NAMED])}{more}. Try generator.engine=transformers and "
                "report this."
            )
        return True

    def _source_hashes(self, started: int) -> asyncio.Future[Mapping[str, str]]:
        """The hashes of the learner that started so, asked for once."""
        if self._hashes is None or self._hashes[1] != started:
            self._hashes = asyncio.ensure_future(self._source.weight_hashes()), started
        return self._hashes[0]

    async def _by_transport(self, engine: EngineClient) -> int:
        """Returns `started` of the learner that sent the weights, as `_as_object`."""
        async with self._turn:  # the learner serves one engine at a time
            peer, (parcel, started) = engine.first_name, await self._connected(engine)
            receive = engine.call("update", engine.actor.receive.remote(parcel, self._version))
            try:
                if self._transport in COLLECTIVE:
                    await both(self._source.send(peer), self._source.stop, receive, engine.stop)
                else:
                    await receive
            finally:
                await self._source.withdraw(peer)
        return started

    async def _as_object(self, engine: EngineClient) -> int:
        async with self._turn:
            if self._object is None:
                offered = await self._source.offer(self._transport, engine.first_name)
                self._object = offered, self._source.started
            parcel, started = self._object
            self._source_hashes(started)  # the learner hashes while the engine loads
        try:
            await engine.call("update", engine.actor.receive.remote(parcel, self._version))
        except ObjectLostError:
            self._object = None
            raise
        return started

    async def _connected(self, engine: EngineClient) -> tuple[Any, int]:
        """The parcel, after the learner's and the engine's current actors are connected, and which learner's it is."""
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
                return parcel, self._source.started


def differing_weights(want: Mapping[str, str], got: Mapping[str, str]) -> list[str]:
    """The names whose hashes differ, in order, with what is wrong where one side has no such name."""
    wrong = {name: name for name in want.keys() & got.keys() if want[name] != got[name]}
    wrong |= {name: f"{name} (missing)" for name in want.keys() - got.keys()}
    wrong |= {name: f"{name} (unknown to the learner)" for name in got.keys() - want.keys()}
    return [wrong[name] for name in sorted(wrong)]


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
