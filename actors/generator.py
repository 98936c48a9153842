"""The generator: one or more engines behind one interface.

The engines get a step's groups in slot order, one to each in turn. So every engine's part of the submission, and the
batches that it forms, are the same each time. A lost engine is replaced, gets the current weights and samples its part
again; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from actors.calls import LOST, START, CallContext, P, Question, T
from actors.engine_actor import EngineClient, Feed, GeneratorActor, Sampled
from actors.model_files import Continuation, ModelFiles, ModelTokenizer, Observed
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.values import Float32, Int32
from raypoly.planning.placement import ON_CPU, Placement, engine_name
from raypoly.rollouts.engines import Sample, SampleRequest

Deliver = Callable[[EngineClient], Awaitable[None]]
"""Sends an engine the current weights (`workflows.step.weight_sync`)."""


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
        context, self.placement = context or CallContext(), placement
        engine = placement.applied(config.generator)
        if config.train.in_flight and engine.engine == "vllm":
            # else a batch that is under way when weights come is told as theirs, and may read half of them
            engine = engine.model_copy(update={"engine_args": {"async_scheduling": False, **engine.engine_args}})
        arguments = (model, engine, config.model.dtype)
        names = [engine_name(index) for index in range(config.generator.engines)]
        self._engines = [
            EngineClient(name, arguments, options(index), context, self._deliver, config.train.in_flight)
            for index, name in enumerate(names)
        ]
        self._send: Deliver | None = None
        self._idle = asyncio.Event()

    @property
    def actors(self) -> dict[str, Any]:
        return {name: actor for engine in self._engines for name, actor in engine.actors.items()}

    @property
    def repeated(self) -> int:
        return sum(engine.repeated for engine in self._engines)

    @property
    def proved(self) -> bool:
        return all(engine.proved for engine in self._engines)

    async def start(self) -> None:
        await asyncio.gather(*(engine.start() for engine in self._engines))

    async def update_weights(self, deliver: Deliver) -> None:
        """Wake every engine by new weights, which replacements of it get too. Raises `WeightsMismatch`."""
        self._idle.clear()
        self._send = deliver
        await asyncio.gather(*(engine.deliver() for engine in self._engines))

    async def rest(self) -> None:
        """Note the end of sampling. Engines sleep where the learner needs their memory."""
        if self.placement.sleeps:
            await asyncio.gather(*(self._sleep(engine) for engine in self._engines))
        self._idle.set()

    async def idle(self) -> None:
        """Return when the learner's device is free."""
        if self.placement.sleeps:
            await self._idle.wait()

    async def tokenizer_files(self) -> dict[str, bytes]:
        return await self._of_tokenizer(START, ModelTokenizer.files)

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        """Tokens of prompts, int32 [P], with a BOS where the tokenizer adds one."""
        return await self._of_tokenizer("generate", ModelTokenizer.encode, list(texts))

    async def continuation(self, observed: Observed) -> Continuation:
        """As `ModelTokenizer.continuation`."""
        return await self._of_tokenizer("generate", ModelTokenizer.continuation, observed)

    async def tool_calls(self, pairs: Sequence[tuple[Int32, Int32]]) -> list[list[Mapping[str, Any]]]:
        """As `ModelTokenizer.tool_calls`."""
        return await self._of_tokenizer("generate", ModelTokenizer.tool_calls, list(pairs))

    async def takes_more(self) -> bool:
        """Whether its engines sample requests that come while others are sampled."""
        answer: bool = await self._engines[0].ask("generate", GeneratorActor.takes_more)
        return answer

    async def encode_responses(self, texts: Sequence[str]) -> list[Int32]:
        """The tokens of whole responses, int32 [T], with the end of a sequence."""
        return await self._of_tokenizer("generate", ModelTokenizer.encode_responses, list(texts))

    async def probe(self, tokens: Int32, seed: int) -> dict[str, tuple[Sample, Float32]]:
        """By engine: a response sampled after `tokens`, and float32 [T-1] log-probabilities of `tokens` themselves."""
        asked = (engine.ask("update", GeneratorActor.probe, tokens, seed) for engine in self._engines)
        answers = await asyncio.gather(*asked)
        return {engine.name: found for engine, found in zip(self._engines, answers, strict=True)}

    async def sample(self, requests: Sequence[SampleRequest], feed: Feed | None = None) -> AsyncIterator[Sampled]:
        """Groups as they finish, each once. `feed`: requests that follow, each of a slot that was answered, until
        None."""
        parts = deal_requests(requests, len(self._engines))
        arrived: asyncio.Queue[Sampled | BaseException | None] = asyncio.Queue()
        feeds = [Feed() for _ in parts]
        sampling = [
            engine.sample(part) if feed is None else engine.sample_fed(part, own)
            for engine, part, own in zip(self._engines, parts, feeds, strict=True)
            if part
        ]
        tasks = [asyncio.create_task(_enqueue_groups(groups, arrived)) for groups in sampling]
        running = len(tasks)
        if feed is not None:
            tasks.append(asyncio.create_task(_deal_feed(feed, parts, feeds)))
        try:
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

    async def _of_tokenizer(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = await self._engines[0].ask(stage, GeneratorActor.tokenizer, question.__name__, *args, **kwargs)
        return answer

    async def _deliver(self, engine: EngineClient) -> None:
        if self._send is not None:
            await self._send(engine)

    async def _sleep(self, engine: EngineClient) -> None:
        try:
            await engine.ask_once("update", GeneratorActor.sleep)
        except LOST:
            engine.stop()  # its memory is free; the next weights find it gone, and replace it


def deal_requests(requests: Sequence[SampleRequest], engines: int) -> list[list[SampleRequest]]:
    ordered = sorted(requests, key=lambda request: request.slot)
    return [ordered[first::engines] for first in range(engines)]


async def _deal_feed(feed: Feed, parts: Sequence[Sequence[SampleRequest]], feeds: Sequence[Feed]) -> None:
    """Give what follows to the engine that has its beginning."""
    engine_of = {request.slot: number for number, part in enumerate(parts) for request in part}
    while (request := await feed.get()) is not None:
        feeds[engine_of[request.slot]].put_nowait(request)
    for each in feeds:
        each.put_nowait(None)


async def _enqueue_groups(
    groups: AsyncIterator[Sampled], arrived: asyncio.Queue[Sampled | BaseException | None]
) -> None:
    try:
        async for group in groups:
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

    async def update_weights(self, deliver: Deliver) -> None:
        """No engine needs them."""

    async def _of_tokenizer(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(question, self._tokenizer, *args, **kwargs)

    async def sample(self, requests: Sequence[SampleRequest], feed: Feed | None = None) -> AsyncIterator[Sampled]:
        raise UsageError(
            "The scaffold says that it samples nothing, and asks for a response without a text: set its `samples`."
        )
        yield
