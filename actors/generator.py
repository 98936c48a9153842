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
from actors.engine_actor import EngineClient, GeneratorActor, Sampled
from actors.learner import LearnerActor
from actors.model_files import ModelFiles, ModelTokenizer
from actors.weight_delivery import Links, WeightDelivery, WeightSource
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.values import Float32, Int32
from raypoly.planning.placement import ON_CPU, Placement, engine_name
from raypoly.rollouts.engines import Sample, SampleRequest


class Generator:
    """A run's engines."""

    samples = True
    """Whether there are engines at all; `TokenizerOnly` has none."""

    def __init__(
        self,
        config: Config,
        model: ModelFiles,
        options: Callable[[int], dict[str, Any]],
        context: CallContext | None = None,
        placement: Placement = ON_CPU,
    ) -> None:
        """`options`: Ray's, by the engine's number."""
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
        return {engine.name: engine.actor for engine in self._engines if engine.actor is not None}

    @property
    def repeated(self) -> int:
        return sum(engine.repeated for engine in self._engines)

    @property
    def proved(self) -> bool:
        return all(engine.proved for engine in self._engines)

    async def start(self) -> None:
        await asyncio.gather(*(engine.start() for engine in self._engines))

    async def update_weights(self, source: WeightSource, version: int) -> None:
        """Wake every engine and send it the learner's weights, of this version. Raises `WeightsMismatch`."""
        self._idle.clear()
        if self._placement.sleeps:
            await source.ask("update", LearnerActor.release)
        self._delivery = WeightDelivery(source, version, self._placement.transport, self._links)
        await asyncio.gather(*(engine.deliver() for engine in self._engines))

    async def rest(self) -> None:
        """Note the end of sampling. Engines sleep where the learner needs their memory."""
        if self._placement.sleeps:
            await asyncio.gather(*(self._sleep(engine) for engine in self._engines))
        self._idle.set()

    async def idle(self) -> None:
        """Return when the learner's device is free."""
        if self._placement.sleeps:
            await self._idle.wait()

    async def tokenizer_files(self) -> dict[str, bytes]:
        return await self._engines[0].ask(START, GeneratorActor.tokenizer_files)

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        """Each text's tokens, int32 [P], without special tokens. Waits for running samples."""
        return await self._engines[0].ask("generate", GeneratorActor.encode, list(texts))

    async def encode_responses(self, texts: Sequence[str]) -> list[Int32]:
        """The tokens of whole responses, int32 [T], with the end of a sequence. Waits for running samples."""
        return await self._engines[0].ask("generate", GeneratorActor.encode_responses, list(texts))

    async def probe(self, tokens: Int32, seed: int) -> dict[str, tuple[Sample, Float32]]:
        """By engine: a response sampled after `tokens`, and float32 [T-1] log-probabilities of `tokens` themselves."""
        asked = (engine.ask("update", GeneratorActor.probe, tokens, seed) for engine in self._engines)
        answers = await asyncio.gather(*asked)
        return {engine.name: found for engine, found in zip(self._engines, answers, strict=True)}

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[Sampled]:
        """Groups as they finish, each once."""
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
            await engine.ask_once("update", GeneratorActor.sleep)
        except LOST:
            engine.stop()  # its memory is free; the next weights find it gone, and replace it


def deal_requests(requests: Sequence[SampleRequest], engines: int) -> list[list[SampleRequest]]:
    ordered = sorted(requests, key=lambda request: request.slot)
    return [ordered[first::engines] for first in range(engines)]


async def _enqueue_groups(
    engine: EngineClient, part: Sequence[SampleRequest], arrived: asyncio.Queue[Sampled | BaseException | None]
) -> None:
    try:
        if part:
            async for group in engine.sample(part):
                arrived.put_nowait(group)
        arrived.put_nowait(None)
    except Exception as error:  # noqa: BLE001 - the reader raises it
        arrived.put_nowait(error)


class TokenizerOnly(Generator):
    """The generator of a run that samples nothing: a tokenizer in the driver, no actors, no weights."""

    samples = False

    def __init__(self, config: Config, model: ModelFiles) -> None:
        super().__init__(config, model, lambda index: {})
        self._engines.clear()
        self._model = model

    async def start(self) -> None:
        folder = await asyncio.to_thread(self._model.here)
        self._tokenizer = await asyncio.to_thread(ModelTokenizer, folder)

    async def update_weights(self, source: WeightSource, version: int) -> None:
        """No engine needs them."""

    async def tokenizer_files(self) -> dict[str, bytes]:
        return await asyncio.to_thread(self._tokenizer.files)

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        return await asyncio.to_thread(self._tokenizer.encode, texts)

    async def encode_responses(self, texts: Sequence[str]) -> list[Int32]:
        return await asyncio.to_thread(self._tokenizer.encode_responses, texts)

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[Sampled]:
        raise UsageError(
            "The scaffold says that it samples nothing, and asks for a response without a text: set its `samples`."
        )
        yield
