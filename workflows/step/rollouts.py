"""Rollout submission: from a step's problems to groups of rollouts, each in the journal before anything else sees it.

A submission is whole and in slot order, so that batch composition, and with it rounding, repeats. What the journal has
already is not taken again; where it has all, nothing is submitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Draft, Group, Problem, Rollout
from raypoly.data.templates import ChatTemplate
from raypoly.rollouts.environments import Environment
from raypoly.rollouts.environments.observation_template import ObservationTemplate
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.run.store.step_records import Drafted, Generated, Record, StepRecords, Turned
from workflows.step.conversations import Conversations, Keep, Opening, scored_by
from workflows.step.scaffold_rounds import ScaffoldRounds
from workflows.step.services import Services
from workflows.step.stopwatch import Stopwatch


@dataclass(frozen=True)
class RolloutSubmission:
    config: Config
    scaffold: Scaffold
    environment: Environment
    services: Services
    commit: Callable[[Record], Awaitable[None]]
    tasks: asyncio.TaskGroup
    records: StepRecords
    watch: Stopwatch
    after: asyncio.Event | None = None
    """What its first request waits for, such as another step's `committed`."""
    committed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the journal has all rollouts of its first submission."""

    def groups(self, problems: Sequence[Problem], first: int = 0, attempt: int = 0) -> list[asyncio.Future[Group]]:
        """Start a submission, the step's number `attempt`, in the slots from `first` on; a future a problem. Raises
        `UsageError` where the journal has another problem in a slot."""
        sampled = {first + i: asyncio.get_running_loop().create_future() for i in range(len(problems))}
        there = {slot: self.records.groups[slot] for slot in sampled if slot in self.records.groups}
        for slot, problem in zip(sampled, problems, strict=True):
            self._check_same(slot, problem)
        for slot, group in there.items():
            sampled[slot].set_result(group)

        async def submit() -> None:
            if self.after is not None:
                await self.after.wait()
            if len(there) < len(problems):
                await self._generate(dict(zip(sampled, problems, strict=True)), sampled, attempt)
            if not self.config.train.refill:  # else more may follow
                await self.services.generator.rest()
            if sampled:
                await asyncio.wait(sampled.values())
            self.committed.set()

        self.tasks.create_task(submit())
        return list(sampled.values())

    def _check_same(self, slot: int, problem: Problem) -> None:
        begun = f"Step {self.records.step + 1} was begun with"
        if (group := self.records.groups.get(slot)) is not None:
            if group.problem_id != problem.id:
                raise problems_changed(f"{begun} {group.problem_id} where the problem set now has {problem.id}")
        elif (rounds := self.records.drafts.get(slot)) and rounds[0]:
            # drafts do not name their problem, but their seeds are made from it
            attempts = range(self.config.train.refill + 1)
            seeds = {self._seed(attempt, slot, problem, ("draft", 0, 0)) for attempt in attempts}
            if rounds[0][0].rollout.seed not in seeds:
                raise problems_changed(f"{begun} another problem where the problem set now has {problem.id}")
        for place, rollout in self.records.conversations.get(slot, {}).items():
            attempts = range(self.config.train.refill + 1)
            if rollout.seed not in {self._seed(attempt, slot, problem, (place,)) for attempt in attempts}:
                raise problems_changed(f"{begun} another problem where the problem set now has {problem.id}")

    async def _generate(
        self, problems: Mapping[int, Problem], sampled: Mapping[int, asyncio.Future[Group]], attempt: int
    ) -> None:
        rounds = ScaffoldRounds(
            self.scaffold,
            self.services.generator,
            self.config,
            self.config.train.rollouts,
            self.records.step,
            partial(self._seed, attempt),
            self._keep_drafts,
            conversations=conversations_of(self.config, self.environment, self.services, self._keep_turn, self._again),
            known_turns=self._known_turns(),
        )
        with self.watch.stage("generate"):
            async for group in rounds.run(problems, self.records.drafts, self.records.groups.keys()):
                self.watch.done("generate")
                self.tasks.create_task(self._keep(group, sampled[group.slot]))

    async def _keep(self, group: Group, sampled: asyncio.Future[Group]) -> None:
        await self.commit(Generated(group))
        sampled.set_result(group)

    def _known_turns(self) -> Mapping[int, Mapping[int, Rollout]]:
        whole = {slot: dict(enumerate(group.rollouts)) for slot, group in self.records.groups.items()}
        return {**self.records.conversations, **whole}

    async def _keep_turn(self, opening: Opening, place: int, rollout: Rollout) -> None:
        await self.commit(Turned(self.records.step, opening.slot, place, rollout, opening.drafts))

    def _again(self, turns: int) -> None:
        self.watch.counts["turns_again"] += turns

    async def _keep_drafts(self, slot: int, number: int, drafts: Sequence[Draft]) -> None:
        await self.commit(Drafted(self.records.step, slot, number, tuple(drafts)))

    def _seed(self, attempt: int, slot: int, problem: Problem, place: tuple[int | str, ...]) -> int:
        return derive(self.config.train.seed, "sample", self.records.step, slot, problem.id, attempt, *place)


def conversations_of(
    config: Config,
    environment: Environment,
    services: Services,
    keep: Keep | None = None,
    again: Callable[[int], None] = lambda turns: None,
) -> Conversations | None:
    """None where rollouts have one turn."""
    if not config.environment.converses:
        return None
    template = ObservationTemplate.of_section(config.environment, ChatTemplate.of(config.problems))
    return Conversations(config, environment, services.generator, scored_by(services.scorers), template, keep, again)


def problems_changed(what: str) -> UsageError:
    return UsageError(f"{what}: bring the old problems back, or add run.fresh=true for a new run.")
