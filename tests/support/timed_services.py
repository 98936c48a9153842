"""Services that take the time they are told, in place of the actors: engine, sandboxes, judge and learner do no work.

A response says in its text how long its program runs and how long the judge looks at its group, so that the services
need nothing but what the real ones are given.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from actors.calls import CallContext
from actors.learner import LearnerGroup
from actors.model_files import ModelFiles
from actors.scorer_actors import ScorerActors, ScorerWorker
from actors.scorer_pool import ScorerPool
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import Config
from raypoly.core.errors import JudgeRefused
from raypoly.core.values import Float32, Float64, Int32, Labels, Problem, Rollout, TestSuite, Verdict
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import LossStats, UpdateStats
from raypoly.planning.placement import ON_CPU
from raypoly.rollouts.engines import Sample, SampleRequest
from raypoly.verifier.rewards import AnsweredGroup, Rewards
from raypoly.verifier.rewards.reward_function import Valued
from tests.support.service_times import APPLY, SYNC, UPDATE, Times
from workflows.startup.run_parts import NamedParts
from workflows.step.learner_session import LearnerSession
from workflows.step.training_group import UpdateRows

_PROMPT = np.array([1, 2, 3, 4], np.int32)
"""Of every problem."""
_TOKENS = np.arange(4, dtype=np.int32)
_LOGPROBS = np.zeros(4, np.float32)


def timed_program(program: float, judged: float, name: str) -> str:
    return f"    run({program:.4f})  # judge({judged:.4f}) {name}\n"


def read_seconds(word: str, of: str) -> float:
    """The seconds that a text says."""
    match = re.search(rf"{word}\(([\d.]+)\)", of)
    assert match is not None
    return float(match[1])


class LocalActor:
    """An actor of this process: calls go on one at a time, in their order, as those of a real one do."""

    def __init__(self, actor: Any) -> None:
        self._actor, self._turn = actor, asyncio.Lock()

    def __getattr__(self, name: str) -> _Method:
        return _Method(getattr(self._actor, name), self._turn)


class _Method:
    def __init__(self, method: Callable[..., Awaitable[Any]], turn: asyncio.Lock) -> None:
        self._method, self._turn = method, turn

    def remote(self, *arguments: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self._in_turn(arguments))

    async def _in_turn(self, arguments: Sequence[Any]) -> Any:
        async with self._turn:
            return await self._method(*arguments)


class TimedGenerator:
    """Groups come out when the times say; `shared`: the learner's device is free when the last one has."""

    proved = samples = True
    placement = ON_CPU

    def __init__(self, times: Times, shared: bool) -> None:
        self._times, self._shared, self._over = times, shared, asyncio.Event()

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        return [_PROMPT for _ in texts]

    async def encode_responses(self, texts: Sequence[str]) -> list[Int32]:
        return [np.append(tokens, np.int32(0)) for tokens in await self.encode(texts)]

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        begun = asyncio.get_running_loop().time()
        for request in sorted(requests, key=lambda request: self._times.groups[request.slot].generated):
            group = self._times.groups[request.slot]
            await asyncio.sleep(begun + group.generated - asyncio.get_running_loop().time())
            texts = [timed_program(s, group.judged, f"{request.slot}.{i}") for i, s in enumerate(group.programs)]
            yield (
                request.slot,
                tuple(
                    Rollout(request.prompt_tokens, _TOKENS, _LOGPROBS, said, "stop", seed, 0)
                    for said, seed in zip(texts, request.seeds, strict=True)
                ),
            )

    async def rest(self) -> None:
        self._over.set()

    async def idle(self) -> None:
        if self._shared:
            await self._over.wait()

    async def update_weights(self, deliver: Any) -> None:
        await asyncio.sleep(SYNC)

    async def probe(self, tokens: Int32, seed: int) -> dict[str, tuple[Sample, Float32]]:
        return {"generator": (Sample(_TOKENS, _LOGPROBS, "stop"), np.zeros(len(tokens) - 1, np.float32))}


class TimedScorer:
    """Verdicts after the seconds that the programs say."""

    async def score(self, problem: Problem, suite: Any, codes: Sequence[str]) -> list[Verdict]:
        await asyncio.sleep(sum(read_seconds("run", code) for code in codes))
        return [
            Verdict("passed", 1, 1, seconds)
            if (seconds := read_seconds("run", code)) < 1
            else Verdict("timeout", 0, 1, seconds)
            for code in codes
        ]


class TimedActors(ScorerActors):
    """Actors that sleep."""

    timed: type[TimedScorer] = TimedScorer

    async def _start(self, worker: ScorerWorker) -> None:
        worker.started += 1
        worker.actor = LocalActor(self.timed())

    def _end(self, worker: ScorerWorker) -> None:
        worker.actor = None


class TimedScorers(ScorerPool):
    """The pool itself, over such actors."""

    actors_class: Callable[..., ScorerActors] = TimedActors

    def _reference(self, tests: TestSuite) -> Any:
        return tests


class TimedJudge:
    """Answers any number of groups at once."""

    sleeps = False

    async def rest(self) -> None:
        """It has no engine."""

    async def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        await asyncio.sleep(read_seconds("judge", rollouts[0].text))
        ids = np.array([1 + i % 3 for i in range(len(rollouts))], np.int32)
        return Labels(ids, np.zeros(len(rollouts), np.bool_), "timed")

    async def grade(
        self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict], question: str
    ) -> list[float]:
        if problem.id == "p2":
            raise JudgeRefused("it gives no grade")
        return [len(question) * (rollout.seed % 3) / 100 for rollout in rollouts]

    async def probe(self) -> None:
        """It is always there."""

    async def stats(self) -> dict[str, Any]:
        return {}


class RewardsHere:
    """Functions and terms of one's own, in this process."""

    actors: Mapping[str, Any] = {}

    def __init__(self, config: Config) -> None:
        self._rewards = Rewards.of_run(config)

    async def outcome(self, answered: AnsweredGroup) -> Valued:
        return await self._rewards.outcome.values(answered)

    async def terms(self, answered: AnsweredGroup) -> Mapping[str, Float64]:
        own = {name: term for name, term in self._rewards.terms.items() if term.own and term.may_say(answered)}
        return {name: term.values(answered) for name, term in own.items()}


class _TimedLearner:
    def __init__(self, rows: int, update: float) -> None:
        self._row_seconds, self._version = (update - APPLY) / rows, 0

    async def begin(self, step: int, normalisers: Normalisers) -> None:
        """Nothing to forget."""

    async def accumulate(self, rows: Sequence[TrainingRow]) -> None:
        await asyncio.sleep(self._row_seconds * len(rows))

    async def apply(self) -> UpdateStats:
        await asyncio.sleep(APPLY)
        self._version += 1
        return UpdateStats(self._version, "timed", 0.0, 1.0, False, 1.0, 1, 1, LossStats(), 3e-4)

    async def logprobs(self, prompt_tokens: Int32, tokens: Int32, temperature: float) -> Float32:
        return np.zeros(len(tokens), np.float32)


class TimedLearnerSession(LearnerSession):
    """The learner's life itself, over an actor that sleeps."""

    def __init__(self, config: Any, journal: Any, saver: Any, groups: int, update: float = UPDATE) -> None:
        """`update`: seconds of all of a step's learning."""
        parts, context = NamedParts.build(config), CallContext()
        rows = UpdateRows(config, parts.objective, parts.loss, parts.scaffold)
        learners = LearnerGroup(config, ModelFiles(Path()), lambda rank: {}, context, rows.temperature)
        super().__init__(config.train, rows, learners, journal, saver, lambda text: None, context)
        self._learners._actors = [LocalActor(_TimedLearner(groups * config.train.rollouts, update))]
