"""The training loop, from top to bottom.

    for each step:                                            (Algorithm 2 of the Poly-EPO code study)
        sample N rollouts for each of |B| problems            generator, one ordered submission
        for each group, as soon as it is there:
            score its programs, cluster them by strategy      group stages: scorer pool, judge, yours
            turn rewards and labels into advantages           objective (Algorithm 1)
            accumulate its gradient, in prompt order          learner
        apply the update, move the weights to the generator

Each finished stage of each group is in the journal before the next stage uses it, so the same command goes on from
where a killed run stood. Weights change only when every group of the step is done: exactly on-policy. With
`train.ahead` the next step is sampled meanwhile, and they change when that is done too, or in its middle.
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
from workflows.step.dynamic_sampling import Ready, StepUnderWay, step_groups
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
        try:
            async with asyncio.TaskGroup() as tasks:  # of what goes on from one step into the next
                ahead: StepUnderWay | None = None
                for step in range(first, self.config.train.steps):
                    if self.durability.memory.plateau.ends_by(step):
                        raise _Plateau(step)
                    ahead = await self.step(step, ahead, tasks)
                    await self.evaluator.evaluate_if_due(step + 1)
        except* _Plateau as plateau:
            self.note_end(*plateau.exceptions[0].args)
        await self.opened.finish()

    def note_end(self, step: int) -> None:
        sampled = len(self.durability.journal.step(step).groups) if self.config.train.ahead else 0
        more = f" Groups that were sampled ahead and are not trained on: {sampled}." if sampled else ""
        self.observers.progress.note(f"The run ends after step {step}, at a plateau (train.stop).{more}")

    def begin(self, step: int, tasks: asyncio.TaskGroup, before: StepUnderWay | None = None) -> StepUnderWay:
        """Start a step: what the journal holds of it is taken from there, the rest is sampled, and each group passes
        its stages. `before`: the step that has its turn, and is sampled first."""
        problems = StepProblems.of_step(self.config, self.order, step, self.durability.memory.cursor)
        turn, progress = asyncio.Event(), self.observers.progress
        watch = Stopwatch(lambda at, n: progress.stage(at if turn.is_set() else f"{at} ahead", n, problems.count))
        known, after = self.durability.journal.step(step), None if before is None else before.submission.committed
        if before is None:
            turn.set()
        elif not self.config.train.in_flight:  # its update waits for this step
            before.submission.watch.ahead = watch

        async def flow(problem: Problem, sampled: asyncio.Future[Group]) -> TrainingGroup:
            group = await sampled
            for stage in self.stages.stages:
                if stage.device != "free":  # until its turn the device, and the weights, are another step's
                    await turn.wait()
                group = await self.stages.advance(group, problem, stage, watch)
            await turn.wait()  # an objective may remember the steps before
            return self.estimator.estimate(group, problem)

        asking, commit = (self.opened.scaffold, self.opened.environment), self.durability.commit
        submission = RolloutSubmission(self.config, *asking, self.services, commit, tasks, known, watch, after)
        groups = step_groups(self.config.train, self.estimator, submission, problems, flow)
        return StepUnderWay(problems, submission, groups, turn)

    async def step(
        self, step: int, begun: StepUnderWay | None = None, beside: asyncio.TaskGroup | None = None
    ) -> StepUnderWay | None:
        """One optimizer step, which may have `begun` ahead. With `train.ahead` returns the next one, which goes on in
        `beside`. Unless in flight, the update waits until that one is sampled: while an engine samples, the learner has
        its weights, and either can be replaced."""
        opened, train, ahead, hold = self.opened, self.config.train, None, None
        if self.stages.runs("judge"):
            self.observers.judge_drift.start_if_due(step)
        async with asyncio.TaskGroup() as tasks:
            now = begun.take_turn() if begun is not None else self.begin(step, tasks)
            if beside is not None and train.ahead and step + 1 < train.steps:
                ahead = self.begin(step + 1, beside, now)
                hold = None if train.in_flight else ahead.submission.committed
            watch, known = now.submission.watch, now.submission.records
            update = tasks.create_task(self.learn(step, now.groups, watch, hold))
        with watch.stage("sync"):
            await opened.weights.sync(sampling=train.in_flight and ahead is not None)
        trained = [group for each in now.groups if (group := each.result()) is not None]
        await opened.sealer.seal(step, trained, update.result(), known.applied, watch, now.problems.cursor)
        return ahead

    async def learn(
        self, step: int, groups: Sequence[Ready], watch: Stopwatch, hold: asyncio.Event | None = None
    ) -> UpdateStats:
        """The step's update, after `hold`. Groups are taken in slot order, each as soon as it and all before it are
        ready, and not before the learner's device is free."""
        await self.services.generator.idle()
        if self.services.judge.sleeps or (self.stages.before_update and self.config.train.mini_batch_prompts):
            await asyncio.wait(groups)  # for what is asked of these weights, before the first update changes them
        await self.services.judge.rest()
        return await self.services.learner.update(step, groups, watch, hold)


class _Plateau(Exception):
    """No error: after so many steps the run ends, and with it what was begun ahead."""
