"""The training loop, told from top to bottom.

    for each step:                                            (Algorithm 2 of the Poly-EPO code study)
        sample N rollouts for each of |B| problems            generator, one ordered submission
        for each group, as soon as it is there:
            score its programs, cluster them by strategy      scorer pool, judge
            turn rewards and labels into advantages           objective (Algorithm 1)
            accumulate its gradient, in prompt order          learner
        apply the update, move the weights to the generator

Each finished stage of each group is in the journal before the next stage uses it, so the same command goes on from
where a killed run stood. Weights change only when every group of the step is done: exactly on-policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from raypoly.config import Config
from raypoly.policy.update_stats import UpdateStats
from raypoly.problems.pass_rates import PassRateOrder
from raypoly.problems.problem_order import EpochOrder, StepProblems
from raypoly.run import is_finished
from raypoly.run_identity import resolve_run
from raypoly.values import Group, Problem
from workflows.evaluate import Evaluator
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.open_run import open_run
from workflows.step.cross_stage import Crossing
from workflows.step.dynamic_sampling import DynamicSampling, Ready
from workflows.step.learner_session import TrainingGroup
from workflows.step.parts import Parts
from workflows.step.rollouts import RolloutSubmission
from workflows.step.stopwatch import Stopwatch


def run(config: Config) -> None:
    """Train, or go on; a finished run is left as it is. Raises what `raypoly.errors` names."""
    directory = resolve_run(config)
    print(directory.uri, flush=True)
    if is_finished(directory):
        return

    ending = Shutdown(config.run.grace_seconds)

    async def train() -> None:
        async with open_run(directory, ending) as parts:
            await Training(parts).run()

    run_workflow(train(), ending)


class Training:
    """One run's loop over steps."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.config = parts, parts.config
        self.order = order_of(parts)
        self.evaluator, self.crossing = Evaluator(parts), Crossing(parts)

    async def run(self) -> None:
        first = self.parts.learning.version
        self.parts.progress.start(self.config.train.steps, first, self.parts.path)
        await self.parts.publish_weights()
        await self.evaluator.evaluate_if_due(first)
        for step in range(first, self.config.train.steps):
            await self.step(step)
            await self.evaluator.evaluate_if_due(step + 1)
        await self.parts.finish()

    async def step(self, step: int) -> None:
        """One optimizer step. Whatever of it the journal holds is taken from there."""
        taking = self.taking(step)
        watch = Stopwatch(lambda stage, groups: self.parts.progress.stage(stage, groups, taking.count))
        known = self.parts.journal.step(step)
        if self.parts.stages.judging:
            self.parts.canary.start_if_due(step)
        async with asyncio.TaskGroup() as tasks:
            ready = self.groups(RolloutSubmission(self.parts, tasks, step, known.groups, watch), taking)
            update = tasks.create_task(self.learn(step, ready, watch))
        with watch.stage("sync"):
            await self.parts.publish_weights()
        groups = [trained for group in ready if (trained := group.result()) is not None]
        await self.parts.complete(step, groups, update.result(), known.applied, watch, taking.cursor)

    def taking(self, step: int) -> StepProblems:
        """The step's problems: those of the order, or with `train.refill` over epochs those where the steps before it
        ended; an order by pass rate is another one for each step."""
        train = self.config.train
        goes_on = train.refill and self.config.problems.order == "epochs"
        place = self.parts.place if goes_on else self.order.cursor_at(step)
        return StepProblems(self.order, place, train.prompts_per_step)

    def groups(self, sampling: RolloutSubmission, taking: StepProblems) -> Sequence[Ready]:
        """The step's groups, by slot."""
        planned = self.flows(sampling, taking.planned)
        if not self.config.train.refill:
            return self.parts.stages.finish(sampling.tasks, planned)
        refilling = DynamicSampling(self.parts.stages, sampling.tasks, self.config.train, sampling.known)

        async def fill() -> None:
            await refilling.fill(planned, further)
            await self.parts.generator.rest()

        def further(count: int, first: int, attempt: int) -> Sequence[asyncio.Task[TrainingGroup]]:
            return self.flows(sampling, taking.more(count), first, attempt)

        sampling.tasks.create_task(fill())
        return refilling.slots

    def flows(
        self, sampling: RolloutSubmission, problems: Sequence[Problem], first: int = 0, attempt: int = 0
    ) -> Sequence[asyncio.Task[TrainingGroup]]:
        """The groups of one submission on their way."""
        sampled = sampling.groups(problems, first, attempt)
        pairs = zip(problems, sampled, strict=True)
        return [sampling.tasks.create_task(self.flow(*pair, sampling.watch)) for pair in pairs]

    async def flow(self, problem: Problem, sampled: asyncio.Future[Group], watch: Stopwatch) -> TrainingGroup:
        """One group's way: rollouts, verdicts, labels, what else the objective asks for, advantages."""
        stages, commit, group = self.parts.stages, self.parts.commit, await sampled
        group = await stages.score(group, problem, watch, commit)
        group = await stages.judge(group, problem, watch, commit)
        group = await self.crossing.cross(group, watch)
        return stages.value(group, problem)

    async def learn(self, step: int, groups: Sequence[Ready], watch: Stopwatch) -> UpdateStats:
        """The step's update. Groups are taken in slot order, each as soon as it and all before it are ready, and not
        before the learner's device is free."""
        await self.parts.generator.idle()
        if self.crossing.wanted and self.config.train.mini_batch_prompts:
            await asyncio.wait(groups)  # for what is asked of these weights, before the first update changes them
        return await self.parts.learning.update(step, groups, watch)


def order_of(parts: Parts) -> EpochOrder | PassRateOrder:
    """Which problems each step trains on, as `problems.order` says."""
    problems, train = parts.problems.splits["train"], parts.config.train
    if parts.config.problems.order == "pass_rate":
        return PassRateOrder(problems, train.prompts_per_step, train.seed, parts.pass_rates, train.refill)
    return EpochOrder(problems, train.prompts_per_step, train.seed, train.refill)
