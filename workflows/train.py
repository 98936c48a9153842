"""The training loop, from top to bottom.

    for each step:                                            (Algorithm 2 of the Poly-EPO code study)
        sample N rollouts for each of |B| problems            generator, one ordered submission
        for each group, as soon as it is there:
            score its programs, cluster them by strategy      group stages: scorer pool, judge, yours
            turn rewards and labels into advantages           objective (Algorithm 1)
            accumulate its gradient, in prompt order          learner
        apply the update, move the weights to the generator

Each finished stage of each group is in the journal before the next stage uses it, so the same command goes on from
where a killed run stood. Weights change only when every group of the step is done: exactly on-policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from raypoly.core.config import Config
from raypoly.core.values import Group, Problem
from raypoly.data.problem_order import StepProblems, build_problem_order
from raypoly.learner.update_stats import UpdateStats
from raypoly.run.run_files import is_finished
from raypoly.run.run_identity import resolve_run
from workflows.evaluate import Evaluator
from workflows.liveness.shutdown import Shutdown
from workflows.startup.open_run import OpenRun, open_run
from workflows.step.dynamic_sampling import Ready, step_groups
from workflows.step.rollouts import RolloutSubmission
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup


def run(config: Config) -> None:
    """Train, or go on; a finished run is left as it is. Raises what `raypoly.core.errors` names."""
    directory = resolve_run(config)
    print(directory.uri, flush=True)
    if is_finished(directory):
        return

    shutdown = Shutdown(config.run.grace_seconds)

    async def train() -> None:
        async with open_run(directory, shutdown, trains=directory.config) as opened:
            await Training(opened).run()

    with shutdown.on_signals():
        asyncio.run(train())


class Training:
    """One run's loop over steps."""

    def __init__(self, opened: OpenRun) -> None:
        self.opened, self.config = opened, opened.config
        self.services, self.durability, self.observers = opened.services, opened.durability, opened.observers
        self.stages, self.estimator = opened.stages, opened.estimator
        self.evaluator, memory = Evaluator(opened), opened.durability.memory
        self.order = build_problem_order(opened.config, opened.problems.splits["train"], memory.pass_rates)

    async def run(self) -> None:
        """Every step from where the run stands to its last, or to a plateau, with the evaluations that are due."""
        first = self.services.learner.version
        self.observers.progress.start(self.config.train.steps, first)
        with self.observers.progress.waiting("Handing the weights to the engine", announce=False):
            await self.opened.weights.sync()
        await self.evaluator.evaluate_if_due(first)
        for step in range(first, self.config.train.steps):
            if self.durability.memory.plateau.ends_by(step):
                self.observers.progress.note(f"The run ends after step {step}, at a plateau (train.stop).")
                break
            await self.step(step)
            await self.evaluator.evaluate_if_due(step + 1)
        await self.opened.finish()

    async def step(self, step: int) -> None:
        """One optimizer step. What the journal holds of it is taken from there."""
        opened = self.opened
        problems = StepProblems.of_step(self.config, self.order, step, self.durability.memory.cursor)
        watch = Stopwatch(lambda stage, groups: self.observers.progress.stage(stage, groups, problems.count))
        known = self.durability.journal.step(step)
        if self.stages.runs("judge"):
            self.observers.judge_drift.start_if_due(step)

        async def flow(problem: Problem, sampled: asyncio.Future[Group]) -> TrainingGroup:
            group = await sampled
            for stage in self.stages.stages:
                group = await self.stages.advance(group, problem, stage, watch)
            return self.estimator.estimate(group, problem)

        async with asyncio.TaskGroup() as tasks:
            commit = self.durability.commit
            asking = opened.scaffold, opened.environment
            submission = RolloutSubmission(self.config, *asking, self.services, commit, tasks, known, watch)
            groups = step_groups(self.config.train, self.estimator, submission, problems, flow)
            update = tasks.create_task(self.learn(step, groups, watch))
        with watch.stage("sync"):
            await opened.weights.sync()
        trained = [group for each in groups if (group := each.result()) is not None]
        await opened.sealer.seal(step, trained, update.result(), known.applied, watch, problems.cursor)

    async def learn(self, step: int, groups: Sequence[Ready], watch: Stopwatch) -> UpdateStats:
        """The step's update. Groups are taken in slot order, each as soon as it and all before it are ready, and not
        before the learner's device is free."""
        await self.services.generator.idle()
        if self.services.judge.sleeps or (self.stages.before_update and self.config.train.mini_batch_prompts):
            await asyncio.wait(groups)  # for what is asked of these weights, before the first update changes them
        await self.services.judge.rest()
        return await self.services.learner.update(step, groups, watch)
