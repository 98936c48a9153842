"""A run's parts, started once and stopped once: folder and lease, journal, actors, watchdog, progress, sinks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from actors.calls import CallContext, InFlightCalls
from actors.generator import Generator
from actors.judge import JudgeClient
from actors.retries import Retries
from actors.scorer import ScorerPool
from raypoly import objectives, problems
from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.metrics.sinks import METRICS, TENSORBOARD, Sinks, open_sinks
from raypoly.objectives.objective_hooks import distinct_prompts
from raypoly.placement import Placement
from raypoly.preflight import asks_judge, refuse_asking_between
from raypoly.problems import ProblemSet
from raypoly.problems.long_prompts import fit_training_prompts
from raypoly.problems.without_tests import require_tests
from raypoly.run_identity import RunDirectory, problem_sets
from raypoly.store import Lease, Store
from raypoly.store.mirror import Mirror
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.damage_report import format_step_ranges
from workflows.durability.journal import Journal
from workflows.liveness.judge_drift import JudgeDriftMonitor
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.liveness.ray_liveness import RayLiveness, ray_gone
from workflows.liveness.shutdown import Shutdown
from workflows.liveness.stacks import Stacks
from workflows.liveness.watchdog import Watchdog
from workflows.observers.progress import Progress, make_progress
from workflows.observers.ray_metrics import RayMetrics
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.observers.summary import Summary
from workflows.startup.ray_cluster import actor_options, connect_ray, dashboard_url
from workflows.startup.resources import ActorResources, reserve_resources
from workflows.step.group_stages import Stages
from workflows.step.learner_session import LearnerSession
from workflows.step.parts import OBJECTIVE_STATE, ORDER_STATE, PLACE, Parts
from workflows.step.skipped_groups import SkippedGroups

Around = Callable[[str, Awaitable[None]], Awaitable[None]]
"""Waits for a part that starts, and may watch how it does."""


async def _wait(name: str, start: Awaitable[None]) -> None:
    await start


@dataclass(frozen=True)
class _Workers:
    """The clients of every actor, and what they share."""

    care: CallContext
    use: RunJudgeUsage
    judge: JudgeClient
    scorers: ScorerPool
    generator: Generator
    learning: LearnerSession
    placement: Placement
    judging: bool
    """Whether the run asks its judge anything."""

    async def start(self, around: Around) -> None:
        """Return when every actor is up that the run needs."""
        await asyncio.gather(
            *([around("judge, started", self.judge.start())] if self.judging else []),
            around("sandbox, started", self.scorers.start()),
            self._start_policy(around),
        )

    async def _start_policy(self, around: Around) -> None:
        """Engines and learner; one after the other where they share a device, for an engine measures what is free."""
        if self.placement.sleeps:
            await around("engine, started", self.generator.start())
            await self.generator.rest()
            await around("learner, started", self.learning.start())
        else:
            await asyncio.gather(
                around("engine, started", self.generator.start()), around("learner, started", self.learning.start())
            )

    def actors(self) -> Mapping[str, Any]:
        """Those there are now, by name."""
        return {**self.generator.actors, **self.scorers.actors, **self.judge.actors, **self.learning.actors}


@asynccontextmanager
async def open_run(
    directory: RunDirectory, ending: Shutdown | None = None, around: Around = _wait
) -> AsyncIterator[Parts]:
    """Everything that a run needs, up and restored to where the run stood; all of it stopped on the way out."""
    config, ending = directory.config, ending or Shutdown()
    async with AsyncExitStack() as stack:
        stack.enter_context(ending.guard())
        progress = make_progress()
        stack.callback(progress.finish)
        problem_set = await asyncio.to_thread(problems.build_problem_set, config.problems)
        require_tests(problem_set, config)  # before the folder holds a run: a mended config may start there
        store, lease = _held(stack, directory, problem_set, progress.note)
        stack.enter_context(connect_ray(config, directory.name))
        url = dashboard_url()
        progress.note(f"Ray dashboard: {url}" if url else "Ray is up")
        model = await model_path(config, problem_set)
        journal = Journal(store, lease)
        checkpoints = Checkpoints(store, lease, config.train.keep_last, config.train.keep_every)
        saver = CheckpointWriter(checkpoints, journal.index_before, progress.note, config.train.ranks)
        stack.push_async_callback(journal.close)
        stack.enter_context(
            RayLiveness(lambda why: ending.end_without_ray(ray_gone(why), journal.flush, lease.release))
        )
        places = await asyncio.to_thread(reserve_resources, config)
        refuse_asking_between(config, places.placement.sleeps)
        workers = _workers(stack, directory, store, model, journal, saver, places, progress.note)
        stack.push_async_callback(saver.close)
        summary, gauges = Summary(store, journal, config), RayMetrics(directory.name, config.objective.name)
        patience = _patience(config, workers.judge, progress, summary, gauges)
        watchdog = stack.enter_context(_watchdog(config, workers, store, patience, progress.note, ending))
        await workers.start(around)
        objective = objectives.of_run(config)
        trained_as = partial(distinct_prompts, objective, rollouts=config.train.rollouts)
        encode = workers.generator.encode
        problem_set = await fit_training_prompts(problem_set, config, encode, progress.note, trained_as)
        aside = SkippedGroups(config.run.max_set_aside, progress.note)
        canary = JudgeDriftMonitor(config, workers.scorers, workers.judge, progress.note)
        stack.callback(canary.stop)
        parts = Parts(
            path=directory.path,
            config=config,
            problems=problem_set,
            tokenizer_files=await workers.generator.tokenizer_files(),
            objective=objective,
            store=store,
            journal=journal,
            saver=saver,
            generator=workers.generator,
            learning=workers.learning,
            judge=workers.judge,
            judge_use=workers.use,
            canary=canary,
            stages=Stages(config, objective, workers.scorers, workers.judge, patience, aside),
            patience=patience,
            progress=progress,
            sinks=_sinks(stack, directory, store),
            summary=summary,
            gauges=gauges,
            care=workers.care,
            aside=aside,
            watchdog=watchdog,
        )
        _take_up(parts)
        stack.push_async_callback(_stopped_early, parts, ending)
        yield parts


def _held(
    stack: AsyncExitStack, directory: RunDirectory, problem_set: ProblemSet, note: Callable[[str], None]
) -> tuple[Store, Lease]:
    """The folder, until the stack releases it."""
    store, lease = directory.open(problems=problem_set.hash)
    stack.callback(lease.release)
    if directory.resumes and len(problem_sets(store)) > 1:
        note("The problem set's content has changed between the starts of this run: steps are not alike.")
    return store, lease


async def _stopped_early(parts: Parts, ending: Shutdown) -> None:
    """Where the run was told to stop: what it has to do before its parts go."""
    if ending.seconds_left:
        await parts.stop_early(ending.seconds_left)


def _workers(
    stack: AsyncExitStack,
    directory: RunDirectory,
    store: Store,
    model: Path,
    journal: Journal,
    saver: CheckpointWriter,
    places: ActorResources,
    note: Callable[[str], None],
) -> _Workers:
    """Not started yet; stopped by the stack."""
    config = directory.config
    care = CallContext(Retries(config.run.retries, note), InFlightCalls())
    use = RunJudgeUsage(store)
    stack.push_async_callback(use.close)
    judge = JudgeClient(
        config.judge, actor_options(), run=directory.uri, spent=lambda: use.spent_usd, on_use=use.add, context=care
    )
    all_tests = config.scorer.all_tests or config.reward.name == "fraction"
    scorers = ScorerPool(config.scorer.model_copy(update={"all_tests": all_tests}), actor_options(), context=care)
    generator = Generator(config, model, places.options, care, places.placement)
    learning = LearnerSession(config, model, journal, saver, places.options, note, care)
    for part in (judge, scorers, generator, learning):
        stack.callback(part.stop)
    return _Workers(care, use, judge, scorers, generator, learning, places.placement, asks_judge(config))


def _patience(
    config: Config, judge: JudgeClient, progress: Progress, summary: Summary, gauges: RayMetrics
) -> JudgeOutagePause:
    """Whose pauses stand in the summary and in the metrics."""

    def paused(pause: Mapping[str, Any], state: str) -> None:
        summary.pause(pause, state)
        gauges.paused(state == "paused")

    return JudgeOutagePause(config.judge, judge.probe, progress, config.run.on_pause, paused)


def _watchdog(
    config: Config,
    workers: _Workers,
    store: Store,
    patience: JudgeOutagePause,
    note: Callable[[str], None],
    ending: Shutdown,
) -> Watchdog:
    """Whose findings end the run."""
    return Watchdog(
        config.run.stall_seconds,
        workers.care.in_flight,
        workers.actors,
        Stacks(store),
        note,
        failed=ending.request,
        paused=lambda: patience.is_paused,
    )


def _sinks(stack: AsyncExitStack, directory: RunDirectory, store: Store) -> Sinks:
    """Closed by the stack."""
    copies = [] if directory.location.folder else [Mirror(store, METRICS, TENSORBOARD)]
    sinks = open_sinks(directory.config, store.workspace, copies)
    stack.callback(sinks.close)
    return sinks


async def model_path(config: Config, problem_set: ProblemSet) -> Path:
    """The folder that the policy starts from: the config's, the hub's, or the tiny model's after its warm start."""
    if config.model.path is not None:
        folder = Path(config.model.path).expanduser()
        return folder if folder.is_dir() else await asyncio.to_thread(_downloaded, config.model.path)
    from workflows.startup.warm_start import (
        ensure_warm_start,  # brings Ray Train and Data, which most starts don't need
    )

    return await asyncio.to_thread(ensure_warm_start, config, problem_set)


def _downloaded(name: str) -> Path:
    from huggingface_hub import snapshot_download  # half a second, which a folder does not need

    try:
        return Path(snapshot_download(name))
    except (OSError, ValueError) as error:  # no such model, no way there, or no name of one
        raise UsageError(
            f"model.path={name} is no folder here and could not be had from the Hugging Face hub "
            f"({str(error).partition(chr(10))[0]}): give a folder with a model, or a model's name there."
        ) from error


def _take_up(parts: Parts) -> None:
    """What a resumed run needs to know of its completed steps: numbers, and the objective's memory."""
    learning = parts.learning
    if learning.checkpoint is not None:
        parts.objective.load_state_dict(json.loads(learning.checkpoint.read(OBJECTIVE_STATE)))
        if parts.config.train.refill:
            parts.place = json.loads(learning.checkpoint.read(ORDER_STATE))["place"]
    by_id = {problem.id: problem for problem in parts.problems.splits["train"]}
    for results in parts.journal.evaluations().values():
        parts.judge_use.restore_reported(results.get("judge"))
    for step in range(learning.version):
        applied = parts.journal.applied(step)
        if applied is None:  # lost to damage, before the checkpoint: the history has a hole
            continue
        parts.record(applied)
        parts.pass_rates.take(applied.metrics)
        parts.judge_use.restore_reported(applied.metrics.get("judge_step"))
        groups = applied.groups or parts.config.train.prompts_per_step
        parts.aside.count(groups, applied.metrics.get("set_aside", 0))
        if step >= learning.base:
            parts.place = applied.metrics.get(PLACE, 0)
        if step >= learning.base and parts.objective.state_dict():
            # An objective that remembers must see again what it saw since the checkpoint.
            for group in parts.journal.load_step(step).groups:
                parts.stages.value(group, by_id[group.problem_id])
    parts.remember()
    parts.summary.steps = learning.version
    holes = format_step_ranges(parts.journal.lost_steps(learning.version))
    if holes:
        parts.progress.note(f"The rollouts of steps {', '.join(holes)} are lost to damage; the run goes on without.")
