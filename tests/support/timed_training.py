"""One step over timed services: as the product runs it, with a barrier after each stage, and in order of arrival.

All of it is the product's own code (`workflows.train.Training` with its stages, journal, scorer pool, learner's life
and stopwatch) but for the services behind the actors' clients, and but for the order of things that gives a version
its name.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.calls import CallContext
from raypoly import objectives
from raypoly.config import Config
from raypoly.metrics.sinks import Sinks
from raypoly.policy.update_stats import UpdateStats
from raypoly.problems import ProblemSet
from raypoly.settings import load
from raypoly.store import acquire_lease
from raypoly.store.local_store import LocalStore
from raypoly.values import Problem, TestSuite
from tests.support.service_times import Times
from tests.support.timed_services import TimedGenerator, TimedJudge, TimedLearnerSession, TimedScorers
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal
from workflows.liveness.judge_drift import JudgeDriftMonitor
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.liveness.stacks import Stacks
from workflows.liveness.watchdog import Watchdog
from workflows.observers.progress import PlainProgress
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.observers.summary import Summary
from workflows.step.dynamic_sampling import Ready
from workflows.step.group_stages import Stages
from workflows.step.learner_session import TrainingGroup
from workflows.step.parts import Parts
from workflows.step.rollouts import RolloutSubmission
from workflows.step.skipped_groups import SkippedGroups
from workflows.step.stopwatch import Stopwatch
from workflows.train import Training


class Barrier(Training):
    """All is generated, then all is scored, then all is judged, then the learner takes it."""

    async def step(self, step: int) -> None:
        problems, stages, commit = self.order.batch(step), self.parts.stages, self.parts.commit
        watch = Stopwatch()
        async with asyncio.TaskGroup() as tasks:
            sampled = RolloutSubmission(self.parts, tasks, step, {}, watch).groups(problems)
        pairs = [(done.result(), problem) for done, problem in zip(sampled, problems, strict=True)]
        scored = await asyncio.gather(*(stages.score(*pair, watch, commit) for pair in pairs))
        pairs = list(zip(scored, problems, strict=True))
        judged = await asyncio.gather(*(stages.judge(*pair, watch, commit) for pair in pairs))
        groups = [stages.value(*pair) for pair in zip(judged, problems, strict=True)]
        stats = await self.parts.learning.update(step, list(map(_known, groups)), watch)
        with watch.stage("sync"):
            await self.parts.publish_weights()
        await self.parts.complete(step, groups, stats, None, watch)


class Arrival(Training):
    """The learner takes groups as they become ready. No run may: other weights would come of it each time."""

    async def learn(self, step: int, groups: Sequence[Ready], watch: Stopwatch) -> UpdateStats:
        ready: list[Ready] = [asyncio.get_running_loop().create_future() for _ in groups]
        following = iter(ready)
        for flow in groups:
            flow.add_done_callback(lambda flow: next(following).set_result(flow.result()))
        await self.parts.generator.idle()
        return await self.parts.learning.update(step, ready, watch)


VERSIONS: Mapping[str, type[Training]] = {"overlapped": Training, "barrier": Barrier, "arrival": Arrival}


async def measure_step(version: str, times: Times, workers: int, colocated: bool) -> Mapping[str, Any]:
    """The row of metrics.jsonl of one step. `colocated`: the learner's device is free when generation is over."""
    with tempfile.TemporaryDirectory() as folder:
        rows = NewestRow()
        parts = await build_parts(Path(folder), times, workers, colocated, rows)
        await VERSIONS[version](parts).step(0)
        parts.stages._scorers.stop()
        await parts.judge_use.close()
        await parts.journal.close()
        return rows.newest


async def build_parts(folder: Path, times: Times, workers: int, colocated: bool, rows: NewestRow) -> Parts:
    config = _config(len(times.groups), len(times.groups[0].programs), workers)
    store = LocalStore(folder)
    lease = acquire_lease(store, "benchmarks.overlap")
    journal = Journal(store, lease)
    saver = CheckpointWriter(Checkpoints(store, lease), journal.index_before, _unheard)
    context = CallContext()
    judge, scorers = TimedJudge(), TimedScorers(config.scorer, {}, context=context)
    await scorers.start()
    objective = objectives.of_run(config)
    progress = PlainProgress((folder / "progress.txt").open("w"))
    patience, aside = JudgeOutagePause(config.judge, judge.probe, progress), SkippedGroups(0.0, _unheard)
    return Parts(
        path=folder,
        config=config,
        problems=ProblemSet({"train": numbered_problems(len(times.groups)), "validation": (), "test": ()}, ""),
        tokenizer_files={},
        objective=objective,
        store=store,
        journal=journal,
        saver=saver,
        generator=TimedGenerator(times, colocated),  # type: ignore[arg-type]
        learning=TimedLearnerSession(config, journal, saver, len(times.groups)),
        judge=judge,  # type: ignore[arg-type]
        judge_use=RunJudgeUsage(store),
        canary=JudgeDriftMonitor(config, scorers, judge, _unheard),  # type: ignore[arg-type]
        stages=Stages(config, objective, scorers, judge, patience, aside),  # type: ignore[arg-type]
        patience=patience,
        progress=progress,
        sinks=Sinks([rows]),
        summary=Summary(store, journal, config),
        gauges=rows,  # type: ignore[arg-type]
        care=context,
        aside=aside,
        watchdog=Watchdog(600.0, context.in_flight, dict, Stacks(store), _unheard, _raised),
    )


def _config(groups: int, rollouts: int, workers: int) -> Config:
    keys = {
        "train.prompts_per_step": groups,
        "train.rollouts": rollouts,
        "train.steps": 2,
        "train.checkpoint_every": 2,
        "scorer.workers": workers,
        "objective.name": "poly_epo",
    }
    return load(None, [f"{key}={value}" for key, value in keys.items()], _unheard)


def numbered_problems(count: int) -> list[Problem]:
    return [
        Problem(f"p{i}", f"Problem {i}.", "f", TestSuite("calls", f"[{i}]"), answer="completion", prefix="def f():\n")
        for i in range(count)
    ]


class NewestRow:
    """Keeps the newest row; stands for the gauges too."""

    newest: Mapping[str, Any]

    def log(self, row: Mapping[str, Any]) -> None:
        self.newest = row

    def close(self) -> None:
        """Nothing is held."""


def _known(group: TrainingGroup) -> asyncio.Future[TrainingGroup]:
    future: asyncio.Future[TrainingGroup] = asyncio.get_running_loop().create_future()
    future.set_result(group)
    return future


def _unheard(text: str) -> None:
    """Nobody reads what these short runs say."""


def _raised(error: Exception) -> None:
    raise error
