"""One step over timed services: as the product runs it, with a barrier after each stage, and in order of arrival.

All of it is the product's own code (`workflows.train.Training` with its stages, journal, scorer pool, learner session
and stopwatch) but for the services behind the actors' clients, and but for the order of things that gives a version
its name.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from raypoly.core.values import Rollout
from raypoly.learner.update_stats import UpdateStats
from raypoly.rollouts.engines import SampleRequest
from raypoly.run.store.step_records import StepRecords
from tests.support.service_times import GENERATION, Times
from tests.support.timed_run import close_run, open_timed_run, timed_config
from tests.support.timed_services import TimedGenerator, TimedLearnerSession
from workflows.step.dynamic_sampling import Ready, StepUnderWay
from workflows.step.rollouts import RolloutSubmission
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup
from workflows.train import Training


class Barrier(Training):
    """All is generated, then all is scored, then all is judged, then the learner takes it."""

    async def step(self, step: int, begun: StepUnderWay | None = None, beside: asyncio.TaskGroup | None = None) -> None:
        opened, problems, watch = self.opened, self.order.batch(step), Stopwatch()
        commit, nothing = self.durability.commit, StepRecords(step, {}, None)
        async with asyncio.TaskGroup() as tasks:
            asking = opened.scaffold, opened.environment
            submission = RolloutSubmission(self.config, *asking, self.services, commit, tasks, nothing, watch)
            sampled = submission.groups(problems)
        groups = [done.result() for done in sampled]
        for stage in self.stages.stages:
            pairs = zip(groups, problems, strict=True)
            groups = await asyncio.gather(*(self.stages.advance(*pair, stage, watch) for pair in pairs))
        trained = [self.estimator.estimate(*pair) for pair in zip(groups, problems, strict=True)]
        stats = await self.services.learner.update(step, list(map(_known, trained)), watch)
        with watch.stage("sync"):
            await opened.weights.sync()
        await opened.sealer.seal(step, trained, stats, None, watch, 0)


class Arrival(Training):
    """The learner takes groups as they become ready. No run may: other weights would come of it each time."""

    async def learn(
        self, step: int, groups: Sequence[Ready], watch: Stopwatch, hold: asyncio.Event | None = None
    ) -> UpdateStats:
        ready: list[Ready] = [asyncio.get_running_loop().create_future() for _ in groups]
        following = iter(ready)
        for flow in groups:
            flow.add_done_callback(lambda flow: next(following).set_result(flow.result()))
        await self.services.generator.idle()
        return await self.services.learner.update(step, ready, watch, hold)


VERSIONS: Mapping[str, type[Training]] = {"overlapped": Training, "barrier": Barrier, "arrival": Arrival}


async def measure_step(version: str, times: Times, workers: int, colocated: bool) -> Mapping[str, Any]:
    """The row of metrics.jsonl of one step. `colocated`: the learner's device is free when generation is over."""
    with tempfile.TemporaryDirectory() as folder:
        opened = await open_timed_run(Path(folder), times, workers, colocated)
        await VERSIONS[version](opened).step(0)
        await close_run(opened)
        row = opened.durability.journal.applied(0)
        assert row is not None
        return row.metrics


class _EachStep(TimedGenerator):
    """Each submission takes the times of its own step."""

    def __init__(self, times: Sequence[Times]) -> None:
        super().__init__(times[0], shared=False)
        self._following = iter(times)

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        self._times = next(self._following)
        async for sampled in super().sample(requests):
            yield sampled


async def measure_ahead(ahead: int, times: Sequence[Times], workers: int) -> float:
    """Seconds a step, of as many as there are times, with `train.ahead`; the learner works as long as the engine."""
    groups, rollouts = len(times[0].groups), len(times[0].groups[0].programs)
    keys = (f"train.steps={len(times)}", f"train.ahead={ahead}", "loss.importance_cap=2")
    config = timed_config(groups, rollouts, workers, *keys)
    learner = partial(TimedLearnerSession, update=GENERATION)
    clock = asyncio.get_running_loop().time
    with tempfile.TemporaryDirectory() as folder:
        opened = await open_timed_run(
            Path(folder), times[0], workers, config=config, generator=_EachStep(times), learner=learner
        )
        opened.durability.checkpoint = _nothing  # type: ignore[method-assign]
        training, begun, started = Training(opened), None, clock()
        async with asyncio.TaskGroup() as tasks:
            for step in range(len(times)):
                begun = await training.step(step, begun, tasks)
        await close_run(opened)
    return (clock() - started) / len(times)


async def _nothing() -> None:
    """There are no weights to keep."""


def _known(group: TrainingGroup) -> asyncio.Future[TrainingGroup]:
    future: asyncio.Future[TrainingGroup] = asyncio.get_running_loop().create_future()
    future.set_result(group)
    return future
