"""The generator actor: owns one engine. `Generator` is the driver's side, which replaces an actor that was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import ObjectLostError

from actors.calls import LOST, START, Care, result
from actors.watched import WATCHED, Pulse, Watched
from raypoly.config import Config, GeneratorConfig
from raypoly.engines import Sample, SampleRequest, Weights, build
from raypoly.values import Float32, Int32, Rollout

T = TypeVar("T")

PROBE_RESPONSE = 64
"""Tokens of the response that a weight update is verified with, at most: it is sampled alone, while the step waits, and
spans two to four blocks of the KV cache."""


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
        self._engine = build(*self._arguments)
        self.beat()

    def sample(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[int, tuple[Rollout, ...]]]:
        """(slot, the group's rollouts), groups as they finish."""
        by_slot = {request.slot: request for request in requests}
        for slot, samples in self._engine.sample(requests):
            self.beat()
            yield slot, self._rollouts(by_slot[slot], samples)

    def update_weights(self, weights: Weights, version: int) -> None:
        self._engine.update_weights(weights)
        self._version = version

    def probe(self, tokens: Int32, seed: int) -> tuple[Sample, Float32]:
        """A response sampled after `tokens`, and float32 [T-1] log-probabilities of the tokens themselves."""
        ((_, (sample,)),) = self._engine.sample([SampleRequest(0, tokens, (seed,), PROBE_RESPONSE)])
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


class Generator:
    """One generator actor, replaced with the right weights when it is lost."""

    def __init__(self, config: Config, model_path: Path, options: dict[str, Any], care: Care | None = None) -> None:
        self._arguments = (str(model_path), config.generator, config.model.dtype)
        self._options, self._care = options, care or Care()
        self._actor: Any = None
        self._weights: tuple[Any, int] | None = None
        self._export: Callable[[], Awaitable[Any]] | None = None
        self._started = 0
        self.name = "generator"
        self.repeated = 0
        """Groups that were decoded again because an actor was lost."""

    @property
    def actors(self) -> dict[str, Any]:
        """The actor's handle by its name."""
        return {} if self._actor is None else {self.name: self._actor}

    async def start(self) -> None:
        await self._patiently(self._start, replaced=True)

    async def update_weights(
        self, weights: Any, version: int, export: Callable[[], Awaitable[Any]] | None = None
    ) -> None:
        """`weights` is a reference to what the learner exported; `export` gives another one where it is lost."""
        self._weights, self._export = (weights, version), export

        async def update() -> None:
            assert self._weights is not None
            await self._call("update", self._actor.update_weights.remote(*self._weights))

        await self._patiently(update)

    async def probe(self, tokens: Int32, seed: int) -> tuple[Sample, Float32]:
        return await self._patiently(lambda: self._call("update", self._actor.probe.remote(tokens, seed)))

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        """Groups as they finish, each once. Where the actor is lost the submission is repeated whole, in its order."""
        given: set[int] = set()
        while True:
            try:
                with self._care.calls.waiting("generate", "generator", self._actor) as call:
                    async for answer in self._actor.sample.options(num_returns="streaming").remote(list(requests)):
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

    async def _patiently(self, ask: Callable[[], Awaitable[T]], replaced: bool = False) -> T:
        """Ask; where the actor is lost, another is asked. `replaced`: what is asked starts a new one by itself."""
        while True:
            try:
                return await ask()
            except LOST as error:
                if replaced:
                    await self._before_another(error)
                else:
                    await self._replace(error)

    async def _replace(self, error: BaseException) -> None:
        """A new actor with the weights of the old one."""
        await self._before_another(error)
        await self.start()

    async def _before_another(self, error: BaseException) -> None:
        self.stop()
        await self._care.retries.again("The generator", error)
        if isinstance(error, ObjectLostError) and self._weights is not None and self._export is not None:
            self._weights = (await self._export(), self._weights[1])

    async def _start(self) -> None:
        self._started += 1
        self.name = "generator" if self._started == 1 else f"generator-{self._started}"
        actor = ray.remote(**WATCHED)(GeneratorActor).options(name=self.name, **self._options)
        self._actor = actor.remote(*self._arguments)
        await self._call(START, self._actor.setup.remote())
        if self._weights is not None:
            await self._call("update", self._actor.update_weights.remote(*self._weights))

    async def _call(self, stage: str, answer: Awaitable[T]) -> T:
        with self._care.calls.waiting(stage, "generator", self._actor):
            return await result(answer)

    def stop(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)
