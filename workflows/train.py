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
from collections.abc import Mapping, Sequence

from raypoly.config import Config
from raypoly.engines import SampleRequest
from raypoly.policy.stats import UpdateStats
from raypoly.problems.order import Order
from raypoly.rundir import resolve
from raypoly.seeds import derive
from raypoly.store.records import Generated
from raypoly.values import Group, Int32, Problem
from workflows.evaluate import Evaluator
from workflows.learning import Trained
from workflows.parts import Parts, is_finished
from workflows.starting import started
from workflows.stopping import Ending, run_workflow
from workflows.stopwatch import Stopwatch


def run(config: Config) -> None:
    """Train, or go on; a finished run is left as it is. Raises what `raypoly.errors` names."""
    directory = resolve(config)
    print(directory.uri, flush=True)
    if is_finished(directory):
        return

    ending = Ending(config.run.grace_seconds)

    async def train() -> None:
        async with started(directory, ending) as parts:
            await Training(parts).run()

    run_workflow(train(), ending)


class Training:
    """One run's loop over steps."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.config = parts, parts.config
        self.order = Order(parts.problems.splits["train"], self.config.train.prompts_per_step, self.config.train.seed)
        self.evaluator = Evaluator(parts)

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
        problems = self.order.batch(step)
        watch = Stopwatch(lambda stage, groups: self.parts.progress.stage(stage, groups, len(problems)))
        known = self.parts.journal.step(step)
        if self.parts.stages.judging:
            self.parts.canary.begin(step)
        async with asyncio.TaskGroup() as tasks:
            sampled = self.sample(tasks, step, problems, known.groups, watch)
            flows = [tasks.create_task(self.flow(*pair, watch)) for pair in zip(problems, sampled, strict=True)]
            ready = self.parts.stages.finish(tasks, flows)
            update = tasks.create_task(self.learn(step, ready, watch))
        with watch.stage("sync"):
            await self.parts.publish_weights()
        groups = [group.result() for group in ready]
        await self.parts.complete(step, groups, update.result(), known.applied, watch)

    def sample(
        self,
        tasks: asyncio.TaskGroup,
        step: int,
        problems: Sequence[Problem],
        known: Mapping[int, Group],
        watch: Stopwatch,
    ) -> list[asyncio.Future[Group]]:
        """A future a slot, filled as groups finish.

        The submission is always the whole step in slot order, so that batch composition, and with it rounding,
        repeats; what the journal holds already is not taken again. Where it holds all, nothing is submitted.
        """
        sampled = [asyncio.get_running_loop().create_future() for _ in problems]
        for slot, group in known.items():
            sampled[slot].set_result(group)

        async def submit() -> None:
            if len(known) < len(problems):
                await generate()
            await self.parts.generator.rest()

        async def generate() -> None:
            tokens = await self.parts.prompt_tokens(problems)
            requests = [self.request(step, slot, *each) for slot, each in enumerate(zip(problems, tokens, strict=True))]
            with watch.stage("generate"):
                async for slot, rollouts in self.parts.generator.sample(requests):
                    watch.done("generate")
                    if slot not in known:
                        tasks.create_task(keep(Group(step, slot, problems[slot].id, rollouts)))

        async def keep(group: Group) -> None:
            await self.parts.commit(Generated(group))
            sampled[group.slot].set_result(group)

        tasks.create_task(submit())
        return sampled

    def request(self, step: int, slot: int, problem: Problem, prompt_tokens: Int32) -> SampleRequest:
        """What the generator is asked for one slot; seeds depend on nothing but the place in the run."""
        seed, rollouts = self.config.train.seed, range(self.config.train.rollouts)
        seeds = tuple(derive(seed, "sample", step, slot, problem.id, 0, rollout) for rollout in rollouts)
        return SampleRequest(slot, prompt_tokens, seeds)

    async def flow(self, problem: Problem, sampled: asyncio.Future[Group], watch: Stopwatch) -> Trained:
        """One group's way: rollouts, verdicts, labels, advantages."""
        stages, commit, group = self.parts.stages, self.parts.commit, await sampled
        group = await stages.score(group, problem, watch, commit)
        group = await stages.judge(group, problem, watch, commit)
        return stages.value(group, problem)

    async def learn(self, step: int, flows: Sequence[asyncio.Task[Trained]], watch: Stopwatch) -> UpdateStats:
        """The step's update. Groups are taken in slot order, each as soon as it and all before it are ready, and not
        before the learner's device is free."""
        await self.parts.generator.idle()
        return await self.parts.learning.update(step, flows, watch)
