"""The generator: one or more engines behind one interface.

The engines get a step's groups in slot order, one to each in turn. So every engine's part of the submission, and the
batches that it forms, are the same each time. A lost engine is replaced, gets the current weights and samples its part
again; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from actors.calls import LOST, START, CallContext
from actors.engine_actor import EngineClient, Sampled
from actors.model_files import ModelFiles
from actors.weight_delivery import Links, WeightDelivery, WeightSource
from raypoly.core.config import Config
from raypoly.core.values import Float32, Int32
from raypoly.planning.placement import ON_CPU, Placement, engine_name
from raypoly.rollouts.engines import Sample, SampleRequest


class Generator:
    """All engines of a run. A lost one is replaced and gets the current weights."""

    samples = True
    """Whether there are engines at all (`actors.tokenizer_only`)."""

    def __init__(
        self,
        config: Config,
        model: ModelFiles,
        options: Callable[[int], dict[str, Any]],
        context: CallContext | None = None,
        placement: Placement = ON_CPU,
    ) -> None:
        """`options`: Ray's actor options by the engine's number."""
        context, self._placement = context or CallContext(), placement
        arguments = (model, placement.applied(config.generator), config.model.dtype)
        names = [engine_name(index) for index in range(config.generator.engines)]
        self._engines = [
            EngineClient(name, arguments, options(index), context, self._deliver) for index, name in enumerate(names)
        ]
        self._delivery: WeightDelivery | None = None
        self._links: Links = {}
        self._idle = asyncio.Event()

    @property
    def actors(self) -> dict[str, Any]:
        """The actors' handles by their names."""
        return {engine.name: engine.actor for engine in self._engines if engine.actor is not None}

    @property
    def repeated(self) -> int:
        """Groups that were sampled again because an actor was lost."""
        return sum(engine.repeated for engine in self._engines)

    @property
    def proved(self) -> bool:
        """Whether every engine has proved that it has the learner's weights."""
        return all(engine.proved for engine in self._engines)

    async def start(self) -> None:
        await asyncio.gather(*(engine.start() for engine in self._engines))

    async def update_weights(self, source: WeightSource, version: int) -> None:
        """Weight sync: wake every engine and send it the learner's weights, which must be of this version.

        Raises `WeightsMismatch` where an engine has others afterwards.
        """
        self._idle.clear()
        if self._placement.sleeps:
            await source.release()
        self._delivery = WeightDelivery(source, version, self._placement.transport, self._links)
        await asyncio.gather(*(engine.deliver() for engine in self._engines))

    async def rest(self) -> None:
        """Note that sampling under these weights is over. Engines sleep where the learner needs the memory."""
        if self._placement.sleeps:
            await asyncio.gather(*(self._sleep(engine) for engine in self._engines))
        self._idle.set()

    async def idle(self) -> None:
        """Return when the learner's device is free: at once, unless engines have to `rest` first."""
        if self._placement.sleeps:
            await self._idle.wait()

    async def tokenizer_files(self) -> dict[str, bytes]:
        """The files of the tokenizer's Hugging Face folder, by name."""
        first = self._engines[0]
        return await first.retry(lambda: first.call(START, first.actor.tokenizer_files.remote()))

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        """Each text's tokens, int32 [P], without special tokens. Waits for running samples."""
        first = self._engines[0]
        return await first.retry(lambda: first.call("generate", first.actor.encode.remote(list(texts))))

    async def encode_responses(self, texts: Sequence[str]) -> list[Int32]:
        """The tokens of whole responses, int32 [T], with the end of a sequence. Waits for running samples."""
        first = self._engines[0]
        return await first.retry(lambda: first.call("generate", first.actor.encode_responses.remote(list(texts))))

    async def probe(self, tokens: Int32, seed: int) -> dict[str, tuple[Sample, Float32]]:
        """By the engine's name: a response sampled after `tokens`, and float32 [T-1] log-probabilities of `tokens`."""

        async def answer(engine: EngineClient) -> tuple[Sample, Float32]:
            return await engine.retry(lambda: engine.call("update", engine.actor.probe.remote(tokens, seed)))

        answers = await asyncio.gather(*(answer(engine) for engine in self._engines))
        return {engine.name: found for engine, found in zip(self._engines, answers, strict=True)}

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[Sampled]:
        """Groups as they finish, each once. If an actor is lost, its whole part is repeated in the same order."""
        if len(self._engines) == 1:
            async for group in self._engines[0].sample(requests):
                yield group
            return
        parts = deal_requests(requests, len(self._engines))
        arrived: asyncio.Queue[Sampled | BaseException | None] = asyncio.Queue()
        tasks = [
            asyncio.create_task(_enqueue_groups(e, part, arrived)) for e, part in zip(self._engines, parts, strict=True)
        ]
        try:
            running = len(tasks)
            while running:
                group_or_end = await arrived.get()
                if isinstance(group_or_end, BaseException):
                    raise group_or_end
                if group_or_end is None:
                    running -= 1
                else:
                    yield group_or_end
        finally:
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        for engine in self._engines:
            engine.stop()

    async def _deliver(self, engine: EngineClient) -> None:
        if self._delivery is not None:
            await self._delivery.to(engine)

    async def _sleep(self, engine: EngineClient) -> None:
        try:
            await engine.call("update", engine.actor.sleep.remote())
        except LOST:
            engine.stop()  # its memory is free; the next weights find it gone, and replace it


def deal_requests(requests: Sequence[SampleRequest], engines: int) -> list[list[SampleRequest]]:
    """Each engine's part of a submission, in slot order: one to each in turn."""
    ordered = sorted(requests, key=lambda request: request.slot)
    return [ordered[first::engines] for first in range(engines)]


async def _enqueue_groups(
    engine: EngineClient, part: Sequence[SampleRequest], arrived: asyncio.Queue[Sampled | BaseException | None]
) -> None:
    """Put an engine's groups into `arrived`, then None, or the error that ended them."""
    try:
        if part:
            async for group in engine.sample(part):
                arrived.put_nowait(group)
        arrived.put_nowait(None)
    except Exception as error:  # noqa: BLE001 - the reader raises it
        arrived.put_nowait(error)
