"""Weight delivery from the learner to an engine, by a transport of `raypoly.rollouts.engines.transfer` or as a Ray
object, and the proof that the weights arrived.

The proof is identity: the engine and the learner hash the weights that each has (`raypoly/learner/weight_hash.py`), and
every name must be there with the same hash. A stale head, a half update or one wrong bit stops the run.

The driver makes the calls of both sides, so it notices a lost side while the other one waits. A collective waits for
its partner for ever: the side that is left is ended too, and both are replaced and get the current weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from ray.exceptions import ObjectLostError

from actors.calls import LOST
from actors.engine_actor import EngineClient, GeneratorActor
from actors.learner import LearnerActor, P, Question, T
from raypoly.core.errors import TransferBroken, WeightsMismatch
from raypoly.rollouts.engines.transfer import COLLECTIVE

_GRACE_SECONDS = 5.0

_NAMED = 3

Links = dict[str, tuple[int, int]]
"""Starts of learner and engine when they were connected, by the engine's first name."""


class WeightSource(Protocol):
    """The learner. `peer` names the engine."""

    @property
    def started(self) -> int: ...

    def lent(self) -> AbstractContextManager[None]:
        """Inside, the weights do not change."""
        ...

    async def offer(self, transport: str, peer: str) -> Any:
        """A reference to the parcel. It is useless where `started` has changed since the sides connected."""
        ...

    async def ask(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def ask_once(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer of this learner. Raises one of `LOST`."""
        ...

    def stop(self) -> None: ...


class WeightDelivery:
    """One version of the weights, for any number of engines and their replacements."""

    def __init__(self, source: WeightSource, version: int, transport: str, links: Links) -> None:
        self._source, self._version, self._transport, self._links = source, version, transport, links
        self._object: tuple[Any, int] | None = None  # the parcel, and `started` of its learner
        self._hashes: tuple[asyncio.Future[dict[str, str]], int] | None = None
        self._turn = asyncio.Lock()

    async def to(self, engine: EngineClient) -> None:
        """Return when the engine has the weights and has proved it, if it can. Raises `WeightsMismatch`, and what
        `EngineClient.retry` handles."""
        send = self._as_object if self._transport == "objects" else self._by_transport
        with self._source.lent():
            while not await self._proved(engine, await send(engine)):
                self._object = self._hashes = None

    async def _proved(self, engine: EngineClient, started: int) -> bool:
        """Compare hashes by name. `started`: of the learner that sent the weights. False where another one may have
        answered: on a GPU its replay may have given other weights."""
        hashes = self._source_hashes(started)
        got = await engine.ask_once("update", GeneratorActor.weight_hashes)
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

    def _source_hashes(self, started: int) -> asyncio.Future[dict[str, str]]:
        """Hashes of that learner, asked for once."""
        if self._hashes is None or self._hashes[1] != started:
            asked = self._source.ask("update", LearnerActor.weight_hashes)
            self._hashes = asyncio.ensure_future(asked), started
        return self._hashes[0]

    async def _by_transport(self, engine: EngineClient) -> int:
        """Returns `started` of the sender, as `_as_object`."""
        async with self._turn:  # the learner serves one engine at a time
            peer, (parcel, started) = engine.first_name, await self._connected(engine)
            receive = engine.ask_once("update", GeneratorActor.receive, parcel, self._version)
            try:
                if self._transport in COLLECTIVE:
                    send = self._source.ask_once("update", LearnerActor.send, peer)
                    await both(send, self._source.stop, receive, engine.stop)
                else:
                    await receive
            finally:
                with suppress(*LOST):  # the end of a lost learner has withdrawn all
                    await self._source.ask_once("update", LearnerActor.withdraw, peer)
        return started

    async def _as_object(self, engine: EngineClient) -> int:
        async with self._turn:
            if self._object is None:
                offered = await self._source.offer(self._transport, engine.first_name)
                self._object = offered, self._source.started
            parcel, started = self._object
            self._source_hashes(started)  # the learner hashes while the engine loads
        try:
            await engine.ask_once("update", GeneratorActor.receive, parcel, self._version)
        except ObjectLostError:
            self._object = None
            raise
        return started

    async def _connected(self, engine: EngineClient) -> tuple[Any, int]:
        """The parcel, once both sides' current actors are connected, and `started` of its learner."""
        peer = engine.first_name
        while True:  # either side may be replaced while the other one is asked
            if self._links.get(peer) != (self._source.started, engine.started):
                info = await self._source.ask("update", LearnerActor.listen, self._transport, peer)
                started = self._source.started
                send = self._source.ask_once("update", LearnerActor.connect, peer)
                connect = engine.ask_once("update", GeneratorActor.connect, info)
                await both(send, self._source.stop, connect, engine.stop)
                self._links[peer] = (started, engine.started)
            parcel = await self._source.offer(self._transport, peer)
            if self._links[peer][0] == self._source.started:
                return parcel, self._source.started


def differing_weights(want: Mapping[str, str], got: Mapping[str, str]) -> list[str]:
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
    """Run both sides of a collective. If one fails, end the other after `grace` seconds and raise the error."""
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
