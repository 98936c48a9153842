"""One engine: the actor that owns it, and the driver's side, which replaces an actor that was lost."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray

from actors.calls import LOST, START, CallContext, result
from actors.watched import WATCHED, Pulse, Watched
from raypoly.config import GeneratorConfig
from raypoly.engines import Sample, SampleRequest, build
from raypoly.engines.transfer import Parcel, check_version
from raypoly.errors import TransferBroken
from raypoly.values import Float32, Int32, Rollout

T = TypeVar("T")
Sampled = tuple[int, tuple[Rollout, ...]]
"""(slot, the group's rollouts)."""

PROBE_RESPONSE = 64
"""Tokens of the response that a weight update is verified with, at most: it is sampled alone, while the step waits, and
spans two to four blocks of the KV cache. An engine without blocks has a number of its own, `probe_tokens`."""


class GeneratorActor(Watched):
    """Samples groups in the order in which they were submitted; one call at a time."""

    def __init__(self, model_path: str, config: GeneratorConfig, dtype: str) -> None:
        self._arguments = (Path(model_path), config, dtype)
        self._version = 0

    def __repr__(self) -> str:
        return f"Generator(engine={self._arguments[1].engine}, weights={self._version})"

    def setup(self) -> None:
        """Load the model; its errors are this call's, not the actor's death."""
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(self._arguments[0])
        self._engine: Any = build(*self._arguments)
        self.beat()

    def tokenizer_files(self) -> dict[str, bytes]:
        """The tokenizer as a Hugging Face folder holds it."""
        with tempfile.TemporaryDirectory() as folder:
            self._tokenizer.save_pretrained(folder)
            return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}

    def encode(self, texts: Sequence[str]) -> list[Int32]:
        """Each text's tokens, int32 [P], and none beside them."""
        return [np.array(ids, np.int32) for ids in self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    def sample(self, requests: Sequence[SampleRequest]) -> Iterator[Sampled]:
        """Groups as they finish."""
        by_slot = {request.slot: request for request in requests}
        for slot, samples in self._engine.sample(requests):
            self.beat()
            yield slot, self._rollouts(by_slot[slot], samples)

    def connect(self, info: Mapping[str, Any]) -> None:
        """Meet the learner's sender, which said `info`."""
        self._engine.connect(info)

    def receive(self, parcel: Parcel, version: int) -> None:
        """Take the weights that a parcel holds or announces, of the version that is wanted."""
        check_version(version, parcel.version)
        if parcel.weights is not None:
            self._engine.update_weights(parcel.weights)
        else:
            self._engine.receive(parcel)
        self._version = version

    def sleep(self) -> None:
        """Give the memory to the learner, until new weights come."""
        self._engine.sleep()

    def probe(self, tokens: Int32, seed: int) -> tuple[Sample, Float32]:
        """A response sampled after `tokens`, and float32 [T-1] log-probabilities of the tokens themselves."""
        limit = getattr(self._engine, "probe_tokens", PROBE_RESPONSE)
        ((_, (sample,)),) = self._engine.sample([SampleRequest(0, tokens, (seed,), max_tokens=limit)])
        return sample, self._engine.prompt_logprobs(tokens)

    def _pulse(self) -> Pulse:
        pulse = super()._pulse()
        # an engine that counts its tokens shows progress within a long group
        return replace(pulse, beats=pulse.beats + getattr(getattr(self, "_engine", None), "decoded", 0))

    def _rollouts(self, request: SampleRequest, samples: Sequence[Sample]) -> tuple[Rollout, ...]:
        return tuple(
            Rollout(
                prompt_tokens=request.prompt_tokens,
                tokens=sample.tokens,
                logprobs=sample.logprobs,
                text=self._tokenizer.decode(sample.tokens, skip_special_tokens=True),
                finish_reason=sample.finish_reason,
                seed=seed,
                weight_version=self._version,
            )
            for seed, sample in zip(request.seeds, samples, strict=True)
        )


class EngineClient:
    """One engine's actor, replaced with the right weights when it is lost."""

    def __init__(
        self,
        name: str,
        arguments: tuple[str, GeneratorConfig, str],
        options: dict[str, Any],
        context: CallContext,
        deliver: Callable[[EngineClient], Awaitable[None]],
    ) -> None:
        """`deliver` gives an engine the weights that it should have, if there are any."""
        self.first_name = name
        """By which retries, stalls and links know it, whichever actor it is."""
        self._arguments, self._options, self._context, self._deliver = arguments, options, context, deliver
        self.actor: Any = None
        self.name = name
        """Of the actor that there is now."""
        self.started = 0
        """How many actors it has been so far."""
        self.repeated = 0
        """Groups that were decoded again because an actor was lost."""

    async def start(self) -> None:
        """Return when an actor is up and has its weights."""
        await self.patiently(self._start, replaced=True)

    async def deliver(self) -> None:
        """Return when the engine has the weights that it should have."""
        await self.patiently(lambda: self._deliver(self))

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[Sampled]:
        """Groups as they finish, each once. Where the actor is lost the submission is repeated whole, in its order."""
        given: set[int] = set()
        while True:
            try:
                with self._context.in_flight.waiting("generate", self.first_name, self.actor) as call:
                    async for answer in self.actor.sample.options(num_returns="streaming").remote(list(requests)):
                        slot, rollouts = await result(answer)
                        call.beat()
                        if slot not in given:
                            given.add(slot)
                            yield slot, rollouts
                        else:
                            self.repeated += 1
                return
            except LOST as error:
                await self._replace(error)

    async def patiently(self, ask: Callable[[], Awaitable[T]], replaced: bool = False) -> T:
        """Ask; where the actor is lost, another is asked. `replaced`: what is asked starts a new one by itself."""
        while True:
            try:
                return await ask()
            except (*LOST, TransferBroken) as error:
                if replaced:
                    await self._before_another(error)
                else:
                    await self._replace(error)

    async def call(self, stage: str, answer: Awaitable[T]) -> T:
        """The answer of the actor that there is now."""
        with self._context.in_flight.waiting(stage, self.first_name, self.actor):
            return await result(answer)

    def stop(self) -> None:
        if self.actor is not None:
            ray.kill(self.actor)

    async def _replace(self, error: BaseException) -> None:
        """A new actor with the weights of the old one."""
        await self._before_another(error)
        await self.start()

    async def _before_another(self, error: BaseException) -> None:
        self.stop()
        await self._context.retries.again(f"The {self.first_name}", error)

    async def _start(self) -> None:
        self.started += 1
        self.name = self.first_name if self.started == 1 else f"{self.first_name}-{self.started}"
        actor = ray.remote(**WATCHED)(GeneratorActor).options(name=self.name, **self._options)
        self.actor = actor.remote(*self._arguments)
        await self.call(START, self.actor.setup.remote())
        await self._deliver(self)
