"""One engine: its actor, and the client in the driver, which replaces a lost actor."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import ray

from actors.calls import LOST, CallContext, InFlightCall, P, Question, ReplacedActor, T, result
from actors.model_files import ModelFiles, ModelTokenizer
from actors.watched import WATCHED, Pulse, Watched, of_run
from raypoly.core.config import GeneratorConfig
from raypoly.core.errors import TransferBroken
from raypoly.core.values import Float32, Int32, Rollout
from raypoly.rollouts.engines import Sample, SampleRequest, build
from raypoly.rollouts.engines.transfer import Parcel, check_version

Sampled = tuple[int, tuple[Rollout, ...]]
"""(slot, the group's rollouts)."""
Feed = asyncio.Queue[SampleRequest | None]
"""Requests that follow in a submission that goes on; None: its end."""
_SIDE = "side"
"""The concurrency group of what is answered while the engine samples."""

# Tokens of the response that is compared after a weight update, at most: after the fixed prompt
# (`workflows.step.weight_sync`) it crosses a block of the KV cache. An engine without blocks has `probe_tokens`.
_PROBE_RESPONSE = 16

_TURN_SECONDS = 0.05  # a submission that waits for requests looks so often for other work, and the other way round


class GeneratorActor(Watched):
    """Samples groups in the order in which they were submitted; one call at a time."""

    def __init__(self, model: ModelFiles, config: GeneratorConfig, dtype: str) -> None:
        self._model, self._config, self._dtype = model, config, dtype
        self._version, self._loading = 0, False
        self._loaded, self._lock = threading.Event(), threading.Lock()
        self._engine_free, self._waiting = threading.Lock(), queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]()
        self._fed: dict[int, queue.SimpleQueue[SampleRequest | None]] = defaultdict(queue.SimpleQueue)

    def __repr__(self) -> str:
        return of_run(f"Generator({self._config.engine}, {self._model.name})")

    def setup(self) -> None:
        """Load the model. An error fails this call, not the actor."""
        try:
            folder = self._model.here()
            self._tokenizer = ModelTokenizer(folder)
            self._engine: Any = build(folder, self._config, self._dtype)
        finally:
            self._loaded.set()
        self.beat()

    @ray.method(concurrency_group=_SIDE)  # type: ignore[untyped-decorator]
    def tokenizer(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What a method of the `ModelTokenizer` returns."""
        self._loaded.wait()
        with self._lock:
            return getattr(self._tokenizer, method)(*args, **kwargs)

    @ray.method(concurrency_group=_SIDE)  # type: ignore[untyped-decorator]
    def feed(self, submission: int, request: SampleRequest | None) -> None:
        """Add a request to a submission that goes on; None ends it."""
        self._fed[submission].put(request)

    def takes_more(self) -> bool:
        """Whether the engine takes requests while it samples."""
        return bool(getattr(self._engine, "takes_more", False))

    def sample(self, requests: Sequence[SampleRequest], submission: int | None = None) -> Iterator[Sampled]:
        """Groups as they finish. With a number of the submission, `feed` adds to it until it ends."""
        with self._engine_free:
            self._let_others()
            yield from self._sample(requests, submission)
            self._let_others()

    def _sample(self, requests: Sequence[SampleRequest], submission: int | None) -> Iterator[Sampled]:
        by_slot = {request.slot: request for request in requests}
        if submission is not None:
            sampled = self._engine.sample(requests, partial(self._more, submission, by_slot))
        elif self._tells_versions:
            sampled = self._engine.sample(requests, self._no_more)
        else:
            sampled = self._engine.sample(requests)
        for slot, samples in sampled:
            self.beat()
            if self._loading:
                raise TransferBroken("new weights came in part")
            if any(np.isnan(sample.logprobs).any() for sample in samples):  # NaN says that a response was given
                raise FloatingPointError(
                    "the engine gave log-probabilities that are no numbers: look at the weights, or at generator.engine"
                )
            yield slot, self._rollouts(by_slot[slot], samples)
        if submission is not None:
            self._fed.pop(submission, None)

    def _more(self, submission: int, by_slot: dict[int, SampleRequest], wait: bool) -> list[SampleRequest] | None:
        """`More`. What came is noted in `by_slot`."""
        found: list[SampleRequest] = []
        while True:
            if self._tells_versions:
                self._let_others()
            waits = wait and not found
            try:
                request = self._fed[submission].get(waits, _TURN_SECONDS)
            except queue.Empty:
                if waits:
                    continue
                return found
            if request is None:
                self._fed[submission].put(None)  # for the next call
                return found or None
            by_slot[request.slot] = request
            found.append(request)

    def _no_more(self, wait: bool) -> Sequence[SampleRequest] | None:
        """`More` of a submission that is whole."""
        self._let_others()
        return None if wait else ()

    @property
    def _tells_versions(self) -> bool:
        """Whether the engine can say which weights a token is by. Without that they change between submissions."""
        return hasattr(self._engine, "set_weight_version")

    def _between_steps(self, work: Callable[[], T]) -> T:
        """What `work` returns: run now, or by a submission that is under way, between two of its steps."""
        self._loaded.wait()
        done = Future[T]()
        self._waiting.put((work, done))
        while not done.done():
            if self._engine_free.acquire(timeout=_TURN_SECONDS):
                try:
                    self._let_others()
                finally:
                    self._engine_free.release()
        return done.result()

    def _let_others(self) -> None:
        while not self._waiting.empty():
            work, done = self._waiting.get()
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - whoever waits raises it
                done.set_exception(error)

    def connect(self, info: Mapping[str, Any]) -> None:
        """Connect to the learner's sender; `info` is from its `listen`."""
        self._between_steps(lambda: self._engine.connect(info))

    def receive(self, parcel: Parcel, version: int) -> None:
        """Load a parcel's weights. Raises `WeightsMismatch` for another `version`."""
        check_version(version, parcel.version)

        def load() -> None:
            self._loading = True
            if parcel.weights is not None:
                self._engine.update_weights(parcel.weights)
            else:
                self._engine.receive(parcel)
            self._version, self._loading = version, False
            if self._tells_versions:
                self._engine.set_weight_version(version)

        self._between_steps(load)

    def weight_hashes(self) -> Mapping[str, str] | None:
        """Hashes of the engine's weights, by name; None if it can't hash them."""

        def hashes() -> Mapping[str, str] | None:
            return self._engine.weight_hashes() if hasattr(self._engine, "weight_hashes") else None

        return self._between_steps(hashes)

    def sleep(self) -> None:
        """Free the device's memory until new weights come."""
        self._engine.sleep()

    def probe(self, tokens: Int32, seed: int) -> tuple[Sample, Float32]:
        """A response sampled after `tokens`, and float32 [T-1] log-probabilities of the tokens themselves."""
        limit = getattr(self._engine, "probe_tokens", _PROBE_RESPONSE)
        ((_, (sample,)),) = self._engine.sample([SampleRequest(0, tokens, (seed,), max_tokens=limit)])
        return sample, self._engine.prompt_logprobs(tokens)

    def _pulse(self) -> Pulse:
        pulse = super()._pulse()
        # an engine that counts its tokens shows progress within a long group
        return replace(pulse, beats=pulse.beats + getattr(getattr(self, "_engine", None), "decoded", 0))

    def _rollouts(self, request: SampleRequest, samples: Sequence[Sample]) -> tuple[Rollout, ...]:
        with self._lock:
            texts = [self._tokenizer.decode(sample.tokens) for sample in samples]
        return tuple(
            Rollout(
                prompt_tokens=request.prompt_tokens,
                tokens=sample.tokens,
                logprobs=sample.logprobs,
                text=text,
                finish_reason=sample.finish_reason,
                seed=seed,
                weight_version=self._version if sample.weight_version is None else sample.weight_version,
                newer_from=sample.newer_from,
            )
            for seed, sample, text in zip(request.seeds, samples, texts, strict=True)
        )


class EngineClient(ReplacedActor):
    """The client of one engine's actor. A replacement gets the current weights."""

    _lost = (*LOST, TransferBroken)

    def __init__(
        self,
        name: str,
        arguments: tuple[ModelFiles, GeneratorConfig, str],
        options: dict[str, Any],
        context: CallContext,
        deliver: Callable[[EngineClient], Awaitable[None]],
        while_sampling: bool = False,
    ) -> None:
        """`deliver` sends an engine the current weights, if there are any. `while_sampling`: and does not wait
        for the end of a submission."""
        super().__init__(name, context)
        self._arguments, self._options, self._deliver = arguments, options, deliver
        self._while_sampling = while_sampling
        self.repeated = 0
        """Groups sampled again because an actor was lost."""
        self._submissions = 0
        self.proved = False
        """Whether the hashes of its weights are the learner's."""

    @property
    def kind(self) -> str:
        return self._arguments[1].engine

    @property
    def name(self) -> str:
        """Of its current actor."""
        return self._next_name

    @property
    def actors(self) -> dict[str, Any]:
        return {} if self._actor is None else {self.name: self._actor}

    async def deliver(self) -> None:
        async with self._lock:  # a replacement gets them by itself
            pass
        await self._retried(self._made_ready)

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[Sampled]:
        """Groups as they finish, each once. A lost actor's whole submission is repeated in order."""
        yielded: set[int] = set()
        while True:
            async with self._lock:  # a replacement has weights first
                generation = self.started
            try:
                with self._context.in_flight.waiting("generate", self.who, self._actor) as call:
                    async for answer in self._actor.sample.options(num_returns="streaming").remote(list(requests)):
                        slot, rollouts = await result(answer)
                        call.beat()
                        if slot not in yielded:
                            yielded.add(slot)
                            yield slot, rollouts
                        else:
                            self.repeated += 1
                return
            except self._lost as error:
                await self._replace(generation, error)

    async def sample_fed(self, requests: Sequence[SampleRequest], feed: Feed) -> AsyncIterator[Sampled]:
        """The same of requests that others follow, no two of one slot at a time, until the feed ends. What a lost actor
        had not answered is asked again."""
        open_ = {request.slot: request for request in requests}
        ended = asyncio.Event()
        while True:
            async with self._lock:  # a replacement has weights first
                generation = self.started
            try:
                with self._context.in_flight.waiting("generate", self.who, self._actor) as call:
                    self._submissions += 1
                    sampling = self._actor.sample.options(num_returns="streaming")
                    answers = sampling.remote(list(open_.values()), self._submissions)
                    feeding = asyncio.create_task(self._feed(self._submissions, feed, open_, ended, call))
                    try:
                        async for answer in answers:
                            slot, rollouts = await result(answer)
                            call.beat()
                            del open_[slot]
                            yield slot, rollouts
                    finally:
                        feeding.cancel()
                        if not ended.is_set():  # whoever asked has gone, or the actor: nothing more follows
                            self._actor.feed.remote(self._submissions, None)
                return
            except self._lost as error:
                self.repeated += len(open_)
                await self._replace(generation, error)

    async def _feed(
        self, submission: int, feed: Feed, open_: dict[int, SampleRequest], ended: asyncio.Event, call: InFlightCall
    ) -> None:
        while not ended.is_set():
            request = await feed.get()
            call.beat()  # an engine may idle for long while tools work
            if request is None:
                ended.set()
            else:
                open_[request.slot] = request
                self._actor.feed.remote(submission, request)
        self._actor.feed.remote(submission, None)

    async def ask(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer of the actor, or of its replacement."""
        return await self._retried(lambda: self.ask_once(stage, question, *args, **kwargs))

    async def ask_once(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The current actor's answer. Raises one of `LOST`."""
        return await self._once(stage, lambda actor: getattr(actor, question.__name__).remote(*args, **kwargs))

    async def ask_between(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `ask_once`, of what the actor does between two steps: `connect`, `receive` and `weight_hashes`."""
        if not self._while_sampling:
            return await self.ask_once(stage, question, *args, **kwargs)
        way = {"concurrency_group": _SIDE}
        return await self._once(
            stage, lambda actor: getattr(actor, question.__name__).options(**way).remote(*args, **kwargs)
        )

    def _launch(self) -> Any:
        groups = {"concurrency_groups": {**WATCHED["concurrency_groups"], _SIDE: 1}}
        options = self._context.unfit.elsewhere(self._options)
        return ray.remote(**groups)(GeneratorActor).options(name=self._next_name, **options).remote(*self._arguments)

    async def _made_ready(self) -> None:
        await self._deliver(self)
