"""Runs of the product's own loop on a virtual clock, for tests of what a step takes: nothing is decoded or trained.

    run = taken(open_virtual(folder, dull={"p3"}, overrides=["train.refill=3"]), count=2)
    run.steps[0].advantages, run.learner.told, run.submitted

A problem that is `dull` is solved by no rollout, every other one by half of them. The learner's digest is that of all
rows it has got.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.model_files import Continuation, Observed
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.core.values import Float32, Group, Int32, Rollout
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import LossStats, UpdateStats
from raypoly.rollouts.engines import SampleRequest
from raypoly.run.store.shards import WEIGHTS, ModelWriter, Shard, ShardWriter
from raypoly.run.store.step_records import CompletedStep, Record
from raypoly.run.store.store import Pieces
from tests.support.service_times import Times
from tests.support.timed_run import close_run, open_timed_run
from tests.support.timed_services import LocalActor, TimedGenerator, TimedLearnerSession, timed_program
from tests.support.virtual_clock import run_virtual
from workflows.durability.checkpoints import Checkpoint
from workflows.durability.journal import Journal
from workflows.startup.open_run import OpenRun
from workflows.train import Training

ROLLOUTS = 4
_STATE = "recorder.json"
"""The recorder's part of a checkpoint."""
SMALL = ("train.prompts_per_step=4", f"train.rollouts={ROLLOUTS}", "train.steps=100", "train.checkpoint_every=1000")


class Sampler(TimedGenerator):
    """Tokens are the seeds'; a prompt's tokens are the numbers in it, the last one its problem's."""

    def __init__(self, dull: Collection[str], shared: bool) -> None:
        super().__init__(Times(()), shared)
        self.dull = dull
        self.learner: Any = None
        """The run's, whose weights are sampled with."""
        self.submitted: list[list[int]] = []
        """The slots of each submission."""
        self.at_work: Callable[[], None] = lambda: None
        """Called in the middle of each."""

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        return [np.array(re.findall(r"\d+", said), np.int32) for said in texts]

    async def sample(
        self, requests: Sequence[SampleRequest], feed: asyncio.Queue[SampleRequest | None] | None = None
    ) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        self.submitted.append([request.slot for request in requests])
        await asyncio.sleep(1.0)
        self.at_work()
        for request in reversed(requests):
            yield request.slot, self._sampled(request)
        while feed is not None and (more := await feed.get()) is not None:
            self.submitted[-1].append(more.slot)
            await asyncio.sleep(0.1)
            yield more.slot, self._sampled(more)

    def _sampled(self, request: SampleRequest) -> tuple[Rollout, ...]:
        fails = f"p{request.prompt_tokens[-1]}" in self.dull
        programs = [
            timed_program(2.0 if fails or i % 2 else 0.01, 1.0, str(seed)) for i, seed in enumerate(request.seeds)
        ]
        return tuple(
            Rollout(request.prompt_tokens, _tokens(seed), np.zeros(2, np.float32), said, "stop", seed, 0)
            for said, seed in zip(programs, request.seeds, strict=True)
        )

    async def takes_more(self) -> bool:
        return True

    async def continuation(self, observed: Observed) -> Continuation:
        return Continuation(np.array([len(observed.text), 7, 7], np.int32), observed.text, False)


class Recorder:
    """A learner that notes what it is told."""

    def __init__(self) -> None:
        self._version, self._digest = 0, ""
        self.told: list[Any] = []
        """`update`, `apply`, `cross`, or the advantages of a group."""
        self.calls: list[int] = []
        """The groups of each call."""

    async def begin(self, step: int, normalisers: Normalisers) -> None:
        assert step == self._version
        self._rows = hashlib.sha256(self._digest.encode())

    async def accumulate(self, rows: Sequence[TrainingRow]) -> None:
        told = [row.advantage for row in rows]
        self.told += [told[start : start + ROLLOUTS] for start in range(0, len(told), ROLLOUTS)]
        self.calls.append(len(rows) // ROLLOUTS)
        for row in rows:
            self._rows.update(row.prompt_tokens.tobytes() + row.tokens.tobytes())
            self._rows.update(repr((row.advantage, row.mask)).encode())

    async def cross_logprobs(self, prompts: Sequence[Int32], responses: Sequence[Int32]) -> tuple[Float32, ...]:
        self.told.append("cross")
        starts = [np.float32(prompt[0]) for prompt in prompts]
        return tuple(np.stack([-((tokens * start) % 13) / 7 for start in starts]) for tokens in responses)

    async def update(self) -> None:
        self.told.append("update")

    async def apply(self) -> UpdateStats:
        self.told.append("apply")
        self._version, self._digest = self._version + 1, self._rows.hexdigest()
        return UpdateStats(self._version, self._digest, 0.0, 1.0, False, 1.0, 1, 1, LossStats(), 3e-4)

    async def digest(self) -> str:
        return self._digest

    async def version(self) -> int:
        return self._version

    async def snapshot(self) -> None:
        self._kept = json.dumps([self._version, self._digest]).encode()

    async def write(self, writer: ShardWriter) -> tuple[Shard, ...]:
        return writer.write(0, [(_STATE, self._kept)])

    def load(self, parts: Mapping[str, bytes]) -> None:
        """Go on from the checkpoint of another one."""
        self._version, self._digest = json.loads(parts[_STATE])

    async def pretrained_config(self) -> dict[str, bytes]:
        return {"config.json": b"{}"}

    async def write_model(self, writer: ModelWriter) -> dict[str, bytes]:
        weights = self._digest.encode()
        writer.write(WEIGHTS, Pieces(len(weights), lambda: iter([weights])))
        return {"config.json": b"{}"}

    async def weight_hashes(self) -> dict[str, str]:
        return {}

    async def logprobs(self, prompt_tokens: Int32, tokens: Int32, temperature: float) -> Float32:
        return np.zeros(len(tokens), np.float32)


class Recorded(TimedLearnerSession):
    """The learner's life itself, over a `Recorder`."""

    recorder: Recorder

    def made(self) -> Recorder:
        """A new learner, of the starting model."""
        return Recorder()

    async def _launch(self) -> Checkpoint | None:
        await self._saver.idle()
        checkpoint = self._saver.checkpoints.newest_valid()
        self.recorder = self.made()
        if checkpoint is not None:
            self.recorder.load(checkpoint.reader.read(0))
        self._learners._actors = [LocalActor(self.recorder)]
        return checkpoint


async def open_virtual(
    folder: Path,
    dull: Collection[str] = (),
    overrides: Sequence[str] = (),
    shared: bool = True,
    learning: Callable[..., Recorded] = Recorded,
    sampling: type[Sampler] = Sampler,
) -> OpenRun:
    """A run in this folder, from wherever it stands; 32 problems, 4 a step with 4 rollouts each, GRPO. `shared`: the
    learner's device is the engine's."""
    config = load(None, [*SMALL, "objective.name=grpo", *overrides], lambda text: None)
    make = partial(_learner, learning)
    times, sampler = Times.drawn(1, 4), sampling(dull, shared)
    opened = await open_timed_run(folder, times, config=config, generator=sampler, learner=make)
    await opened.services.learner.start()
    sampler.learner = opened.services.learner
    return opened


def _learner(learning: Callable[..., Recorded], config: Config, journal: Journal, writer: Any, groups: int) -> Recorded:
    return learning(config, journal, writer, 1)


@dataclass(frozen=True)
class Taken:
    """Steps that were taken, and what was told to whom on the way from where the run stood."""

    steps: Sequence[CompletedStep]
    """As the journal has them, the first ones too."""
    opened: OpenRun
    """Closed."""
    kinds: Sequence[str]
    """Of the records that were committed."""

    @property
    def learner(self) -> Recorder:
        session: Any = self.opened.services.learner
        found: Recorder = session.recorder
        return found

    @property
    def submitted(self) -> list[list[int]]:
        """The slots of each submission."""
        generator: Any = self.opened.services.generator
        found: list[list[int]] = generator.submitted
        return found


def taken(opening: Awaitable[OpenRun], count: int = 1) -> Taken:
    """Go on from where the run stands to the end of its first `count` steps."""

    async def work() -> Taken:
        opened, kinds = await opening, list[str]()
        commit = opened.durability.journal.commit

        async def noted(record: Record) -> None:
            kinds.append(record.kind)
            await commit(record)

        opened.durability.journal.commit = noted  # type: ignore[method-assign]
        try:
            opened.restore()
            training = Training(opened)
            for step in range(opened.services.learner.version, count):
                await training.step(step)
            return Taken([opened.durability.journal.load_step(step) for step in range(count)], opened, kinds)
        finally:
            await close_run(opened)

    return run_virtual(work())


def facts(groups: Sequence[Group]) -> list[Any]:
    """All that a resumed run's groups must have like an undisturbed one's."""

    def of(rollout: Rollout) -> Any:
        turns = [(turn.role, turn.start, turn.text) for turn in rollout.turns]
        return rollout.seed, rollout.prompt_tokens.tolist(), rollout.tokens.tolist(), turns, rollout.finish_reason

    return [
        (
            group.slot,
            group.problem_id,
            [of(rollout) for rollout in group.rollouts],
            [(of(draft.rollout), draft.role, draft.parent) for draft in group.drafts],
            group.draft_of.tolist(),
        )
        for group in groups
    ]


def held(opening: Awaitable[OpenRun], stage: str) -> int:
    """How many groups of the first step the journal holds with the stage's finding."""

    async def work() -> int:
        opened = await opening
        groups = opened.durability.journal.step(0).groups.values()
        await close_run(opened)
        return sum(stage in group.findings for group in groups)

    return run_virtual(work())


class Stopped(Exception):
    """The driver is gone."""


def stop_after(journal: Journal, commits: int | None, seals: bool = False) -> None:
    """Let the journal make so many commits, with `seals` also of whole steps: what comes then stops the driver. None:
    all that come."""
    left, commit, seal = commits, journal.commit, journal.seal_step

    def count() -> None:
        nonlocal left
        if left == 0:
            raise Stopped
        left = None if left is None else left - 1

    async def commit_some(record: Record) -> None:
        count()
        await commit(record)

    async def seal_some(*step: Any) -> None:
        count()
        await seal(*step)

    journal.commit = commit_some  # type: ignore[method-assign]
    if seals:
        journal.seal_step = seal_some  # type: ignore[method-assign, assignment]


async def stopped_after(opening: Awaitable[OpenRun], commits: int) -> None:
    """Begin the first step; it stops after so many commits, and before it is compacted."""
    opened = await opening

    async def seal_nothing(*what: object) -> None:
        raise Stopped

    stop_after(opened.durability.journal, commits)
    opened.durability.journal.seal_step = seal_nothing  # type: ignore[method-assign]
    with pytest.raises((ExceptionGroup, Stopped)):
        await Training(opened).step(0)
    await close_run(opened)


def _tokens(seed: int) -> Int32:
    return np.array([seed % 99_991, seed % 99_989], np.int32)
