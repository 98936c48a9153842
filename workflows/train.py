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
from raypoly.problems.by_pass_rate import ByPassRate
from raypoly.problems.order import Order
from raypoly.problems.taking import Taking
from raypoly.run import is_finished
from raypoly.rundir import resolve
from raypoly.seeds import derive
from raypoly.store.records import Generated
from raypoly.values import Group, Int32, Problem
from workflows.evaluate import Evaluator
from workflows.learning import Trained
from workflows.parts import Parts
from workflows.refilling import Ready, Refilling
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
        self.order = order_of(parts)
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
        taking = self.taking(step)
        watch = Stopwatch(lambda stage, groups: self.parts.progress.stage(stage, groups, taking.count))
        known = self.parts.journal.step(step)
        if self.parts.stages.judging:
            self.parts.canary.begin(step)
        async with asyncio.TaskGroup() as tasks:
            ready = self.groups(tasks, step, taking, known.groups, watch)
            update = tasks.create_task(self.learn(step, ready, watch))
        with watch.stage("sync"):
            await self.parts.publish_weights()
        groups = [trained for group in ready if (trained := group.result()) is not None]
        await self.parts.complete(step, groups, update.result(), known.applied, watch, taking.place)

    def taking(self, step: int) -> Taking:
        """The step's problems: those of the order, or with `train.refill` over epochs those where the steps before it
        ended; an order by pass rate is another one for each step."""
        train = self.config.train
        goes_on = train.refill and self.config.problems.order == "epochs"
        place = self.parts.place if goes_on else self.order.place(step)
        return Taking(self.order, place, train.prompts_per_step)

    def groups(
        self, tasks: asyncio.TaskGroup, step: int, taking: Taking, known: Mapping[int, Group], watch: Stopwatch
    ) -> Sequence[Ready]:
        """The step's groups, by slot."""
        planned = self.flows(tasks, step, taking.planned, known, watch)
        if not self.config.train.refill:
            return self.parts.stages.finish(tasks, planned)
        refilling = Refilling(self.parts.stages, tasks, self.config.train, known)

        async def fill() -> None:
            await refilling.fill(planned, further)
            await self.parts.generator.rest()

        def further(count: int, first: int, attempt: int) -> Sequence[asyncio.Task[Trained]]:
            return self.flows(tasks, step, taking.more(count), known, watch, first, attempt)

        tasks.create_task(fill())
        return refilling.slots

    def flows(
        self,
        tasks: asyncio.TaskGroup,
        step: int,
        problems: Sequence[Problem],
        known: Mapping[int, Group],
        watch: Stopwatch,
        first: int = 0,
        attempt: int = 0,
    ) -> Sequence[asyncio.Task[Trained]]:
        """The groups of one submission on their way."""
        sampled = self.sample(tasks, step, problems, known, watch, first, attempt)
        return [tasks.create_task(self.flow(*pair, watch)) for pair in zip(problems, sampled, strict=True)]

    def sample(
        self,
        tasks: asyncio.TaskGroup,
        step: int,
        problems: Sequence[Problem],
        known: Mapping[int, Group],
        watch: Stopwatch,
        first: int = 0,
        attempt: int = 0,
    ) -> list[asyncio.Future[Group]]:
        """A future a problem, filled as groups finish; they take the slots from `first` on.

        A submission is always whole and in slot order, so that batch composition, and with it rounding, repeats; what
        the journal holds already is not taken again. Where it holds all, nothing is submitted.
        """
        sampled = {first + i: asyncio.get_running_loop().create_future() for i in range(len(problems))}
        there = {slot: known[slot] for slot in sampled if slot in known}
        for slot, group in there.items():
            sampled[slot].set_result(group)

        async def submit() -> None:
            if len(there) < len(problems):
                await generate()
            if not self.config.train.refill:  # else more may follow
                await self.parts.generator.rest()

        async def generate() -> None:
            tokens = await self.parts.prompt_tokens(problems)
            each = zip(sampled, problems, tokens, strict=True)
            requests = [self.request(step, slot, problem, prompt, attempt) for slot, problem, prompt in each]
            with watch.stage("generate"):
                async for slot, rollouts in self.parts.generator.sample(requests):
                    watch.done("generate")
                    if slot not in there:
                        tasks.create_task(keep(Group(step, slot, problems[slot - first].id, rollouts)))

        async def keep(group: Group) -> None:
            await self.parts.commit(Generated(group))
            sampled[group.slot].set_result(group)

        tasks.create_task(submit())
        return list(sampled.values())

    def request(self, step: int, slot: int, problem: Problem, prompt_tokens: Int32, attempt: int = 0) -> SampleRequest:
        """What the generator is asked for one slot; seeds depend on nothing but the place in the run."""
        seed, rollouts = self.config.train.seed, range(self.config.train.rollouts)
        seeds = tuple(derive(seed, "sample", step, slot, problem.id, attempt, rollout) for rollout in rollouts)
        return SampleRequest(slot, prompt_tokens, seeds)

    async def flow(self, problem: Problem, sampled: asyncio.Future[Group], watch: Stopwatch) -> Trained:
        """One group's way: rollouts, verdicts, labels, advantages."""
        stages, commit, group = self.parts.stages, self.parts.commit, await sampled
        group = await stages.score(group, problem, watch, commit)
        group = await stages.judge(group, problem, watch, commit)
        return stages.value(group, problem)

    async def learn(self, step: int, groups: Sequence[Ready], watch: Stopwatch) -> UpdateStats:
        """The step's update. Groups are taken in slot order, each as soon as it and all before it are ready, and not
        before the learner's device is free."""
        await self.parts.generator.idle()
        return await self.parts.learning.update(step, groups, watch)


def order_of(parts: Parts) -> Order | ByPassRate:
    """Which problems each step trains on, as `problems.order` says."""
    problems, train = parts.problems.splits["train"], parts.config.train
    if parts.config.problems.order == "pass_rate":
        return ByPassRate(problems, train.prompts_per_step, train.seed, parts.pass_rates, train.refill)
    return Order(problems, train.prompts_per_step, train.seed, train.refill)
