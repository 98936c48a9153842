"""A run from its folder: lease, journal, actors, watchdog, progress and sinks, started once and stopped once.

async with open_run(directory, shutdown) as opened:
    await Training(opened).run()
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from actors.generator import Generator
from actors.model_files import ModelFiles
from raypoly.core.config import Config
from raypoly.data import ProblemSet
from raypoly.data.long_prompts import fit_training_prompts
from raypoly.data.problem_set import describe_splits
from raypoly.planning.placement import Placement, refuse_placement
from raypoly.planning.preflight import refuse_asking_between
from raypoly.planning.run_config import usable_problems
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.rollouts.scaffolds.run_scaffolds import first_prompts, is_sampled
from raypoly.run.run_files import STATEMENTS, write_statements
from raypoly.run.run_identity import RunDirectory, problem_sets
from raypoly.run.store import Lease, Store
from raypoly.run.store.catalogue import completed_steps
from raypoly.run.store.shards import RunWitness
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.history import format_step_ranges
from workflows.durability.journal import Journal
from workflows.liveness.ray_liveness import RayLiveness, ray_gone
from workflows.liveness.ray_output import ActorLogs, RayMessages
from workflows.liveness.shutdown import Shutdown
from workflows.observers.progress import Progress
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.startup.ray_cluster import connect_ray, joins_cluster, ray_is_up
from workflows.startup.resources import reserve_resources
from workflows.startup.run_parts import NamedParts, StartedActors, build_services
from workflows.startup.starting_model import starting_model, with_copy_for_other_nodes
from workflows.step.advantages import AdvantageEstimator
from workflows.step.rollouts import problems_changed
from workflows.step.run_durability import RunDurability, RunMemory
from workflows.step.run_observers import RunObservers, open_observers
from workflows.step.scaffold_rounds import check_given
from workflows.step.seal_step import StepSealer
from workflows.step.services import Around, Services
from workflows.step.stages import StageRunner
from workflows.step.weight_sync import WeightSync


@dataclass
class OpenRun:
    """A run that is ready to go on."""

    path: Path
    config: Config
    problems: ProblemSet
    parts: NamedParts
    services: Services
    durability: RunDurability
    observers: RunObservers

    def __post_init__(self) -> None:
        config, services, durability, observers = self.config, self.services, self.durability, self.observers
        parts = self.parts
        self.objective, self.scaffold, self.environment = parts.objective, parts.scaffold, parts.environment
        self.stages = StageRunner(parts.stages, parts.objective, services, observers.judge_pause, durability.commit)
        self.estimator = AdvantageEstimator(parts.objective, parts.scaffold, parts.rewards, parts.stages, config.credit)
        self.weights = WeightSync(config, services, self.problems.splits["train"], observers.progress.note)
        self.sealer = StepSealer(config, services, durability, observers, self.stages, self.weights)

    def restore(self) -> None:
        """Restore numbers, and the objective's memory, from the completed steps. Raises `UsageError`."""
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
        """Export the final weights, and say that the run is done."""
        with self.observers.progress.waiting("Saving the last weights", announce=False):
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
    """Start all that a run needs, restore it to where it stood, and stop all on the way out. `samples`: with engines
    and scorers; None: if the config needs them. `trains`: the config whose steps must have enough problems."""
    config, shutdown = directory.config, shutdown or Shutdown()
    parts = NamedParts.build(config, trains is not None)  # first: one that is missing is told before anything starts
    samples = is_sampled(config) if samples is None else samples
    async with AsyncExitStack() as stack:
        stack.enter_context(shutdown.guard())
        progress = Progress(Console())
        stack.callback(progress.finish)
        with progress.waiting("Loading the problems"):
            source, problem_set = await asyncio.to_thread(usable_problems, config, directory.resumes, trains)
        progress.note(f"Problems: {describe_splits(problem_set, config.problems)}")
        store, lease, witness = _held(stack, directory, problem_set, progress.note)
        ending = stack.enter_context(ExitStack())
        _connect(stack, directory, store, progress)
        with progress.waiting("Getting the model", announce=False):
            model = with_copy_for_other_nodes(await starting_model(config, source, progress.note))
        journal = Journal(store)
        checkpoints = Checkpoints(store, lease, config.train.keep_last, config.train.keep_every)
        writer = CheckpointWriter(checkpoints, journal.index_before, progress.note, config.train.ranks)
        stack.push_async_callback(journal.close)
        await _check_teacher(directory, parts if trains else None, model, journal)
        lost = partial(shutdown.end_without_ray, flush=journal.flush, release=lease.release)
        stack.enter_context(RayLiveness(lambda why: lost(ray_gone(why))))
        started = StartedActors.of(config, parts.stages, problem_set, samples, trains is not None)
        places = await reserve_resources(config, progress.note, samples, len(started.models) + started.judge_in_engine)
        _refuse_taking_turns(config, parts, places.placement, trains is not None)
        usage = RunJudgeUsage(store)
        services = build_services(
            stack, directory, parts, started, usage, model, journal, writer, places, witness, progress.note
        )
        stack.push_async_callback(writer.close)
        observers = open_observers(stack, directory, services, journal, store, usage, progress, shutdown)
        with (
            progress.waiting(f"Starting {started.describe(config.generator.engine)}"),
            ActorLogs(store.workspace / "actors.log", progress.note),
        ):
            await services.start(around, started.judging, started.scoring, started.rewarding, places.placement.sleeps)
        problem_set = await _fitting_problems(problem_set, config, parts.scaffold, services.generator, progress.note)
        durability = RunDurability(
            store,
            journal,
            writer,
            RunMemory(config, parts.objective),
            services.learner,
            services.context,
            await services.generator.tokenizer_files(),
        )
        opened = OpenRun(directory.path, config, problem_set, parts, services, durability, observers)
        opened.restore()
        stack.push_async_callback(_stopped_early, durability, shutdown, progress.note)
        stack.callback(ending.enter_context, progress.waiting("Stopping actors and Ray", announce=False))
        yield opened


async def _check_teacher(
    directory: RunDirectory, parts: NamedParts | None, model: ModelFiles, journal: Journal
) -> None:
    """Before the first step, and where the teacher's server has another address. `parts`: None without training."""
    moved = any(change.key == "distill.server" for change in directory.changes)
    if parts is not None and (moved or not journal.completed_steps()):
        await parts.check_student(model)


def _refuse_taking_turns(config: Config, parts: NamedParts, placement: Placement, trains: bool) -> None:
    refuse_asking_between(config, placement.sleeps, parts.on_learner_device)
    if trains:
        refuse_placement(config.train, placement.kind)


def _connect(stack: AsyncExitStack, directory: RunDirectory, store: Store, progress: Progress) -> None:
    with progress.waiting(f"Joining Ray at {os.environ['RAY_ADDRESS']}" if joins_cluster() else "Starting Ray"):
        stack.enter_context(connect_ray(directory.config, directory.name))
    stack.enter_context(RayMessages(store.workspace / "ray.log", progress.note))
    progress.note(ray_is_up(directory.config))


async def _fitting_problems(
    problem_set: ProblemSet, config: Config, scaffold: Scaffold, generator: Generator, note: Callable[[str], None]
) -> ProblemSet:
    asked = partial(first_prompts, scaffold, attempts=config.train.rollouts)
    problem_set = await fit_training_prompts(problem_set, config, generator.encode, note, asked)
    await check_given(generator, config, problem_set.splits["train"], scaffold)
    return problem_set


def _held(
    stack: AsyncExitStack, directory: RunDirectory, problem_set: ProblemSet, note: Callable[[str], None]
) -> tuple[Store, Lease, RunWitness]:
    store, lease = directory.open(problems=problem_set.hash)
    stack.callback(lease.release)
    done, steps = max(completed_steps(store), default=-1) + 1, directory.config.train.steps
    if done:
        note(f"Resuming at step {done + 1} of {steps}" if done < steps else f"All {steps} steps are done already")
    changed = directory.resumes and len(problem_sets(store)) > 1
    if changed or not store.exists(STATEMENTS):
        write_statements(store, (problem for split in problem_set.splits.values() for problem in split))
    if changed:
        note("The problem set's content has changed between the starts of this run: steps are not alike.")
    return store, lease, directory.witness(store, lease)


async def _stopped_early(durability: RunDurability, shutdown: Shutdown, note: Callable[[str], None]) -> None:
    if shutdown.seconds_left:
        await durability.stop_early(shutdown.seconds_left, note)
