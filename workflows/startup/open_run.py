"""From a run's folder to a run that is ready: lease, journal, actors, watchdog, progress and sinks, started once and
stopped once.

    async with open_run(directory, shutdown) as opened:
        await Training(opened).run()
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from actors.calls import CallContext, InFlightCalls, Retries
from actors.gate import GateClient
from actors.generator import Generator
from actors.judge import JudgeClient
from actors.model_files import ModelFiles
from actors.scorer_pool import ScorerPool
from actors.tokenizer_only import TokenizerOnly
from raypoly import data as problems
from raypoly.algorithms import objectives
from raypoly.algorithms.objectives import Objective
from raypoly.core.config import Config
from raypoly.data import ProblemSet
from raypoly.data.long_prompts import fit_training_prompts
from raypoly.data.problem_order import require_enough
from raypoly.data.problem_set import describe_splits
from raypoly.data.readable_prompts import require_readable
from raypoly.planning.preflight import refuse_asking_between, require_tests
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds.planned_prompts import first_prompts
from raypoly.rollouts.scaffolds.run_scaffolds import check_first_asks, fit_problems, is_sampled
from raypoly.run.run_identity import RunDirectory, problem_sets, run_id
from raypoly.run.sinks import METRICS, TENSORBOARD, Mirror, Sinks, open_sinks
from raypoly.run.store import Lease, Store
from raypoly.run.store.catalogue import completed_steps
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.damage_report import format_step_ranges
from workflows.durability.journal import Journal
from workflows.liveness.actor_logs import ActorLogs
from workflows.liveness.judge_drift import JudgeDriftMonitor
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.liveness.ray_liveness import RayLiveness, ray_gone
from workflows.liveness.ray_messages import RayMessages
from workflows.liveness.shutdown import Shutdown
from workflows.liveness.stacks import Stacks
from workflows.liveness.watchdog import Watchdog
from workflows.observers.live_numbers import live_numbers
from workflows.observers.progress import Progress, make_progress
from workflows.observers.ray_metrics import RayMetrics
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.observers.summary import Summary
from workflows.startup.ray_cluster import actor_options, connect_ray, dashboard_url, joins_cluster, scorer_options
from workflows.startup.resources import ActorResources, reserve_resources
from workflows.startup.run_parts import RunParts
from workflows.startup.starting_model import starting_model, with_copy_for_other_nodes
from workflows.step.advantages import AdvantageEstimator
from workflows.step.learner_session import LearnerSession
from workflows.step.rollouts import problems_changed
from workflows.step.run_durability import RunDurability, RunMemory
from workflows.step.run_observers import RunObservers
from workflows.step.scaffold_rounds import check_given
from workflows.step.seal_step import StepSealer
from workflows.step.services import Around, Services
from workflows.step.skipped_groups import SkippedGroups
from workflows.step.stages import StageRunner, build_stages
from workflows.step.weight_sync import WeightSync


@dataclass
class OpenRun:
    """A run that is ready to go on: its config, problems and objective, what works for it, and the parts of a step."""

    path: Path
    config: Config
    problems: ProblemSet
    objective: Objective
    services: Services
    durability: RunDurability
    observers: RunObservers

    def __post_init__(self) -> None:
        config, services, durability, observers = self.config, self.services, self.durability, self.observers
        self.scaffold = scaffolds.of_run(config)
        self.stages = StageRunner(config, self.objective, services, observers.judge_pause, durability.commit)
        self.estimator = AdvantageEstimator(config, self.objective)
        self.weights = WeightSync(config, services, self.problems.splits["train"], observers.progress.note)
        self.sealer = StepSealer(config, services, durability, observers, self.stages, self.weights)

    def restore(self) -> None:
        """Restore the numbers and the objective's memory from the completed steps. Raises `UsageError`."""
        learner, journal, memory = self.services.learner, self.durability.journal, self.durability.memory
        if learner.checkpoint is not None:
            memory.load(learner.checkpoint)
        by_id = {problem.id: problem for problem in self.problems.splits["train"]}
        for results in journal.evaluations().values():
            self.observers.restore_evaluation(results)
            self.observers.judge_usage.restore_reported(results.get("judge"))
        for step in range(learner.version):
            applied = journal.applied(step)
            if applied is None:  # lost to damage, before the checkpoint: the history has a hole
                continue
            self.observers.restore(applied)
            self.observers.judge_usage.restore_reported(applied.metrics.get("judge_step"))
            groups = applied.groups or self.config.train.prompts_per_step
            self.services.skipped.count(groups, applied.metrics.get("set_aside", 0))
            memory.take(applied.metrics, since_checkpoint=step >= learner.base)
            if step >= learner.base and self.objective.state_dict():
                # An objective that remembers must see again what it saw since the checkpoint.
                for group in journal.load_step(step).groups:
                    if group.problem_id not in by_id:
                        raise problems_changed(f"Step {step + 1} was trained on {group.problem_id}, which is gone")
                    self.estimator.estimate(self.stages.decode(group), by_id[group.problem_id])
        memory.keep_objective()
        self.observers.summary.steps = learner.version
        holes = format_step_ranges(journal.lost_steps(learner.version))
        if holes:
            self.observers.progress.note(
                f"The rollouts of steps {', '.join(holes)} are lost to damage; the run goes on without."
            )

    async def finish(self) -> None:
        """Export the final weights as a Hugging Face folder, and say that the run is done."""
        await self.durability.export()
        self.observers.summary.write("finished")


async def _wait(name: str, start: Awaitable[None]) -> None:
    await start


@asynccontextmanager
async def open_run(
    directory: RunDirectory,
    shutdown: Shutdown | None = None,
    around: Around = _wait,
    samples: bool | None = None,
    trains: Config | None = None,
) -> AsyncIterator[OpenRun]:
    """Start all that a run needs, restore the run to where it stood, and stop all on the way out. `samples`: whether
    that includes engines and scorers; None for whether the run's config needs them. `trains`: the config of the steps
    that there must be enough problems for."""
    config, shutdown = directory.config, shutdown or Shutdown()
    objective, scaffold = objectives.of_run(config), scaffolds.of_run(config)
    samples = is_sampled(config) if samples is None else samples
    stages = build_stages(config, objective)  # first, so that a missing stage is reported before anything starts
    async with AsyncExitStack() as stack:
        stack.enter_context(shutdown.guard())
        progress = make_progress()
        stack.callback(progress.finish)
        progress.note("Loading the problems ...")
        source, problem_set = await asyncio.to_thread(_usable_problems, directory, trains)
        progress.note(f"Problems: {describe_splits(problem_set, config.problems)}")
        store, lease = _held(stack, directory, problem_set, progress.note)
        progress.note(f"Joining Ray at {os.environ['RAY_ADDRESS']} ..." if joins_cluster() else "Starting Ray ...")
        stack.enter_context(connect_ray(config, directory.name))
        stack.enter_context(RayMessages(store.workspace / "ray.log", progress.note))
        progress.note(_ray_is_up(config))
        model = with_copy_for_other_nodes(await starting_model(config, source))
        journal = Journal(store, lease)
        checkpoints = Checkpoints(store, lease, config.train.keep_last, config.train.keep_every)
        writer = CheckpointWriter(checkpoints, journal.index_before, progress.note, config.train.ranks)
        stack.push_async_callback(journal.close)
        lost = partial(shutdown.end_without_ray, flush=journal.flush, release=lease.release)
        stack.enter_context(RayLiveness(lambda why: lost(ray_gone(why))))
        parts = RunParts.of(config, stages, problem_set, samples)
        places = await reserve_resources(config, progress.note, samples, parts.gate is not None)
        asking = [stage.name for stage in stages if stage.used and stage.device == "learner"]
        refuse_asking_between(config, places.placement.sleeps, asking)
        usage = RunJudgeUsage(store)
        services = _services(stack, directory, usage, model, journal, writer, places, progress.note, parts)
        stack.push_async_callback(writer.close)
        observers = _observers(stack, directory, services, journal, store, usage, progress, shutdown)
        progress.note(f"Starting {parts.describe(config.generator.engine)} ...")
        with ActorLogs(store.workspace / "actors.log", progress.note):
            await services.start(around, parts.judging, parts.scoring, places.placement.sleeps)
        asked = partial(first_prompts, scaffold, attempts=config.train.rollouts)
        problem_set = await fit_training_prompts(problem_set, config, services.generator.encode, progress.note, asked)
        await check_given(services.generator, config, problem_set.splits["train"], scaffold)
        durability = RunDurability(
            store,
            journal,
            writer,
            RunMemory(config, objective),
            services.learner,
            services.context,
            await services.generator.tokenizer_files(),
        )
        opened = OpenRun(directory.path, config, problem_set, objective, services, durability, observers)
        opened.restore()
        stack.push_async_callback(_stopped_early, durability, shutdown, progress.note)
        yield opened


def _usable_problems(directory: RunDirectory, trains: Config | None) -> tuple[ProblemSet, ProblemSet]:
    """Those of `problems.source`, and those of the run. Raises `UsageError`, before the folder holds a run: a mended
    config may start there."""
    config = directory.config
    source = problems.build_problem_set(config.problems)
    problem_set = fit_problems(source, config)
    check_first_asks(problem_set, config)
    require_tests(problem_set, config)
    if trains is not None:
        require_enough(problem_set.splits["train"], trains)
    require_readable(source, problem_set, config, directory.resumes)
    return source, problem_set


def _ray_is_up(config: Config) -> str:
    if url := dashboard_url():
        return f"Ray dashboard: {url}"
    asked = config.ray.dashboard and not joins_cluster()
    return "Ray is up" + (", without its dashboard, which did not start" if asked else "")


def _held(
    stack: AsyncExitStack, directory: RunDirectory, problem_set: ProblemSet, note: Callable[[str], None]
) -> tuple[Store, Lease]:
    """Take the run's folder. The stack releases it."""
    store, lease = directory.open(problems=problem_set.hash)
    stack.callback(lease.release)
    done, steps = max(completed_steps(store), default=-1) + 1, directory.config.train.steps
    if done:
        note(f"Resuming at step {done + 1} of {steps}" if done < steps else f"All {steps} steps are done already")
    if directory.resumes and len(problem_sets(store)) > 1:
        note("The problem set's content has changed between the starts of this run: steps are not alike.")
    return store, lease


async def _stopped_early(durability: RunDurability, shutdown: Shutdown, note: Callable[[str], None]) -> None:
    """If the run was told to stop, save what there is time for before its actors end."""
    if shutdown.seconds_left:
        await durability.stop_early(shutdown.seconds_left, note)


def _services(
    stack: AsyncExitStack,
    directory: RunDirectory,
    usage: RunJudgeUsage,
    model: ModelFiles,
    journal: Journal,
    writer: CheckpointWriter,
    places: ActorResources,
    note: Callable[[str], None],
    parts: RunParts,
) -> Services:
    """The services, not started yet. The stack stops them."""
    config = directory.config
    context = CallContext(Retries(config.run.retries, note), InFlightCalls())
    stack.push_async_callback(usage.close)
    judge = JudgeClient(
        config.judge,
        actor_options(),
        run=directory.uri,
        spent=lambda: usage.spent_usd,
        on_use=usage.add,
        context=context,
    )
    all_tests = config.scorer.all_tests or config.reward.name == "fraction"
    scorer = config.scorer.model_copy(update={"all_tests": all_tests})
    scorers = ScorerPool(scorer, scorer_options(config.scorer, places.cpus), context=context)
    generator = (
        Generator(config, model, places.engine, context, places.placement)
        if parts.samples
        else TokenizerOnly(config, model)
    )
    learner = LearnerSession(config, model, journal, writer, places.rank, note, context)
    gate = None
    if parts.gate is not None:
        files = with_copy_for_other_nodes(ModelFiles(parts.gate.folder))
        gate = GateClient(parts.gate, files, places.gate, context)
        stack.callback(gate.stop)
    for service in (judge, scorers, generator, learner):
        stack.callback(service.stop)
    return Services(generator, learner, scorers, judge, SkippedGroups(config.run.max_set_aside, note), context, gate)


def _observers(
    stack: AsyncExitStack,
    directory: RunDirectory,
    services: Services,
    journal: Journal,
    store: Store,
    usage: RunJudgeUsage,
    progress: Progress,
    shutdown: Shutdown,
) -> RunObservers:
    """The observers. The stack stops those that watch something."""
    config = directory.config
    summary = Summary(store, journal, config)
    pause = JudgeOutagePause(config.judge, progress, config.run.on_pause, summary.pause)
    live = partial(live_numbers, services, journal, usage, pause)
    ray_metrics = stack.enter_context(RayMetrics(directory.name, config.objective.name, live))
    services.context.in_flight.on_end = ray_metrics.call_ended
    watchdog = Watchdog(
        config.run.stall_seconds,
        services.context.in_flight,
        services.actors,
        Stacks(store),
        progress.note,
        failed=shutdown.request,
        paused=lambda: pause.is_paused,
    )
    stack.enter_context(watchdog)
    drift = JudgeDriftMonitor(config, services.scorers, services.judge, progress.note)
    stack.callback(drift.stop)
    sinks = _sinks(stack, directory, store)
    return RunObservers(progress, sinks, summary, ray_metrics, usage, drift, pause, watchdog)


def _sinks(stack: AsyncExitStack, directory: RunDirectory, store: Store) -> Sinks:
    """The sinks. The stack closes them."""
    copies = [] if directory.location.folder else [Mirror(store, METRICS, TENSORBOARD)]
    known = run_id(store) if directory.config.run.wandb_project else None
    sinks = open_sinks(directory.config, store.workspace, copies, known)
    stack.callback(sinks.close)
    return sinks
