"""Weight sync: the learner's new weights go to every engine, which proves that they arrived.

They travel by a transport of `raypoly.rollouts.engines.transfer`, or as a Ray object.
The proof is identity: the engine and the learner hash the weights that each has (`raypoly/learner/weight_hash.py`), and
every name must be there with the same hash. A stale head, a half update or one wrong bit stops the run.

Both then compute the log-probabilities of a fixed prompt, and of a response sampled after it. That covers what no hash
sees, such as a stale prefix cache or other kernels. But rounding moves single tokens further than an update does, so
the difference is measured, and never stops a run.

The driver makes the calls of both sides, so it notices a lost side while the other one waits. A collective waits for
its partner for ever: the side that is left is ended too, and both are replaced and get the current weights.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from ray.exceptions import ObjectLostError

from actors.calls import LOST
from actors.engine_actor import EngineClient, GeneratorActor
from actors.learner import LearnerActor
from raypoly.core.config import Config
from raypoly.core.errors import TransferBroken, WeightsMismatch
from raypoly.core.seeds import derive
from raypoly.core.values import Float32, Int32, Problem
from raypoly.rollouts.engines.transfer import COLLECTIVE
from workflows.step.learner_session import LearnerSession
from workflows.step.scaffold_rounds import encode_prompts
from workflows.step.services import Services

# Mean |difference| of a log-probability that gives a note. With the right weights vLLM and transformers were 7.6e-6
# apart at most in fp32 on a CPU, 0.0016 in the mean on an H200, whose attention multiplies in TF32, and 0.025 in bf16,
# where single tokens reach 0.52 (135M weights).
_WORRYING = {"float32": 0.02, "bfloat16": 0.1}
_PROBE_TOKENS = 120  # of the fixed prompt: almost four KV blocks of 32, so that a short response reaches the fifth
_GRACE_SECONDS = 5.0  # for a side of a collective to notice by itself that the other one failed
_NAMED = 3  # wrong weights that an error names

Links = dict[str, tuple[int, int]]
"""Starts of learner and engine when they were connected, by the engine's first name."""


class WeightSync:
    def __init__(
        self, config: Config, services: Services, problems: Sequence[Problem], note: Callable[[str], None]
    ) -> None:
        self._config, self.services, self._problems, self._note = config, services, problems, note
        self._probe: Int32 | None = None
        self._worried = self._unproved = False
        self._links: Links = {}
        self._turn = asyncio.Lock()
        self._delivery: WeightDelivery | None = None
        self.difference = {"probe_mean": math.nan, "probe_q99": math.nan}
        """|engine - learner| of the probe's log-probabilities after the last sync; the largest of the engines."""

    async def sync(self, sampling: bool = False) -> None:
        """Return when every engine has the learner's weights. `sampling`: while they sample, so that nothing is probed.
        Raises `WeightsMismatch`."""
        generator, learner = self.services.generator, self.services.learner
        if not generator.samples:
            return
        before = await self._fixed_logprobs() if self._config.train.offload == "all" else None
        if generator.placement.sleeps:  # the learner's memory is free before an engine wakes
            await learner.ask("update", LearnerActor.release)
            await self.services.judge.rest()
        await generator.update_weights(self._deliver)
        self._delivery = None  # Ray drops its object; a replaced engine gets another
        if not generator.proved and not self._unproved:
            self._unproved = True
            self._note(
                f"The engine {self._engine} has no weight_hashes(): nothing proves that it gets the learner's weights, "
                "and log-probabilities give a warning at most."
            )
        if not sampling:
            await self._measure(before)

    async def _deliver(self, engine: EngineClient) -> None:
        """Send an engine what the learner has now; in flight that may be newer than the last sync."""
        learner = self.services.learner
        await learner.settled()
        if self._delivery is None or self._delivery.version != learner.version:
            transport = self.services.generator.placement.transport
            self._delivery = WeightDelivery(learner, learner.version, transport, self._links, self._turn)
        await self._delivery.to(engine)

    async def _fixed_logprobs(self) -> Float32:
        tokens = await self.probe_tokens()
        return await self.services.learner.ask("update", LearnerActor.logprobs, tokens[:1], tokens[1:], 1.0)

    async def _measure(self, before: Float32 | None) -> None:
        """`before`: the learner's log-probabilities of the fixed prompt where its weights have left since, and would
        have no room beside an engine that is awake; the sampled response is not compared then."""
        generator, learner, config = self.services.generator, self.services.learner, self._config
        tokens = await self.probe_tokens()
        # One after the other: on the same cores, their threads wait for each other and take many times as long.
        probed = await generator.probe(tokens, derive(config.train.seed, "probe"))
        if before is not None:
            self._tell({name: fixed - before for name, (_, fixed) in probed.items()})
            return
        want_fixed = await self._fixed_logprobs()
        samples = {sample.tokens.tobytes(): sample.tokens for sample, _ in probed.values()}  # one, but for rounding
        heat = config.generator.temperature
        logprobs = [await learner.ask("update", LearnerActor.logprobs, tokens, each, heat) for each in samples.values()]
        want_sampled = dict(zip(samples, logprobs, strict=True))
        self._tell(
            {
                name: np.concatenate([sample.logprobs - want_sampled[sample.tokens.tobytes()], fixed - want_fixed])
                for name, (sample, fixed) in probed.items()
            }
        )

    def _tell(self, apart: Mapping[str, Float32]) -> None:
        """`apart`: engine - learner, of each token by engine."""
        learner, config = self.services.learner, self._config
        found = {name: _difference(np.abs(each)) for name, each in apart.items()}
        mean, q99 = np.max([*found.values()], axis=0).tolist()
        self.difference = {"probe_mean": mean, "probe_q99": q99}
        worried = not mean <= _WORRYING[config.model.dtype]
        if worried and not self._worried:
            name = max(found, key=found.__getitem__)
            self._note(
                f"After the update to version {learner.version} the engine {self._engine} ({name}) and the learner "
                f"differ by {mean:.3g} in the mean log-probability of a token, far more than rounding "
                "does: compare with generator.engine=transformers."
            )
        self._worried = worried

    @property
    def _engine(self) -> str:
        return self._config.generator.engine

    async def probe_tokens(self) -> Int32:
        """The first training prompts, end to end. Raises as `encode_prompts`."""
        if self._probe is None:
            limit = min(_PROBE_TOKENS, self._config.generator.max_prompt_tokens)
            first = await encode_prompts(self.services.generator, self._config, self._problems[:limit])
            self._probe = np.resize(np.concatenate(first), limit)
        return self._probe


def _difference(apart: Float32) -> tuple[float, float]:
    return float(apart.mean()), float(np.quantile(apart, 0.99))


class WeightDelivery:
    """One version of the weights, for any number of engines and their replacements."""

    def __init__(self, source: LearnerSession, version: int, transport: str, links: Links, turn: asyncio.Lock) -> None:
        """`turn`: the learner serves one engine at a time."""
        self._source, self.version, self._transport, self._links = source, version, transport, links
        self._object: tuple[Any, int] | None = None  # the parcel, and `started` of its learner
        self._hashes: tuple[asyncio.Future[dict[str, str]], int] | None = None
        self._turn = turn

    async def to(self, engine: EngineClient) -> None:
        """Return when the engine has the weights and has proved it, if it can. Raises `WeightsMismatch`, and
        `LOST` or `TransferBroken`, after which the engine is replaced."""
        send = self._as_object if self._transport == "objects" else self._by_transport
        with self._source.lent():
            while not await self._proved(engine, await send(engine)):
                self._object = self._hashes = None

    async def _proved(self, engine: EngineClient, started: int) -> bool:
        """Compare hashes by name. `started`: of the learner that sent the weights. False where another one may have
        answered: on a GPU its replay may have given other weights."""
        hashes = self._source_hashes(started)
        got = await engine.ask_between("update", GeneratorActor.weight_hashes)
        wrong = [] if got is None else differing_weights(await hashes, got)
        engine.proved = got is not None and not wrong
        if wrong and self._source.started != started:
            return False
        if wrong:
            more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            raise WeightsMismatch(
                f"After the update to version {self.version} the engine {engine.kind} ({engine.name}) has other "
                f"weights than the learner: {', '.join(wrong[:_NAMED])}{more}. Try generator.engine=transformers and "
                "report this."
            )
        return True

    def _source_hashes(self, started: int) -> asyncio.Future[dict[str, str]]:
        if self._hashes is None or self._hashes[1] != started:
            asked = self._source.ask("update", LearnerActor.weight_hashes)
            self._hashes = asyncio.ensure_future(asked), started
        return self._hashes[0]

    async def _by_transport(self, engine: EngineClient) -> int:
        """Returns `started` of the sender, as `_as_object`."""
        async with self._turn:
            peer, (parcel, started) = engine.who, await self._connected(engine)
            receive = engine.ask_between("update", GeneratorActor.receive, parcel, self.version)
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
                offered = await self._source.offer(self._transport, engine.who)
                self._object = offered, self._source.started
            parcel, started = self._object
            self._source_hashes(started)  # the learner hashes while the engine loads
        try:
            await engine.ask_between("update", GeneratorActor.receive, parcel, self.version)
        except ObjectLostError:
            self._object = None
            raise
        return started

    async def _connected(self, engine: EngineClient) -> tuple[Any, int]:
        """The parcel, once both sides' current actors are connected, and `started` of its learner."""
        peer = engine.who
        while True:  # either side may be replaced while the other one is asked
            if self._links.get(peer) != (self._source.started, engine.started):
                info = await self._source.ask("update", LearnerActor.listen, self._transport, peer)
                started = self._source.started
                send = self._source.ask_once("update", LearnerActor.connect, peer)
                connect = engine.ask_between("update", GeneratorActor.connect, info)
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
