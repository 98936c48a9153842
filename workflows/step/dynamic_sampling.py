"""Dynamic sampling: groups that teach nothing are left out of a step's update, and further problems take their place.

A group teaches nothing if its final advantages are all zero (`Objective.silent`). How many are missing is known when
every group of the step so far is valued: then so many are sampled in one submission, in slots after the last, and so on
until none is missing or `train.refill` were added. So what a step adds follows from the groups in the journal alone,
and a run that is killed between goes on with the same problems, seeds and submissions.

What is left out stays so: an objective that normalises over the batch sees those that were kept, with the new ones,
each time. The update has at most the planned groups, and is divided as without refill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from raypoly.core.config import TrainConfig
from raypoly.core.values import Group, Problem
from raypoly.data.problem_order import StepProblems
from workflows.step.advantages import AdvantageEstimator
from workflows.step.rollouts import RolloutSubmission
from workflows.step.training_group import TrainingGroup

Ready = asyncio.Task[TrainingGroup | None] | asyncio.Future[TrainingGroup | None]
"""None for a slot that stays empty."""
Further = Callable[[int, int, int], Sequence[asyncio.Task[TrainingGroup]]]
"""Starts groups: how many, from which slot on, in which round (from 1)."""
Flow = Callable[[Problem, asyncio.Future[Group]], Coroutine[Any, Any, TrainingGroup]]


@dataclass(frozen=True)
class StepUnderWay:
    """A step whose groups are being sampled and found out about."""

    problems: StepProblems
    submission: RolloutSubmission
    groups: Sequence[Ready]
    turn: asyncio.Event
    """Set when every earlier step is sealed: from then on learner and objective are this step's."""

    def take_turn(self) -> Self:
        """Begin the turn of a step that was begun ahead."""
        self.submission.watch.begin_turn()
        self.turn.set()
        return self


def step_groups(
    config: TrainConfig,
    estimator: AdvantageEstimator,
    submission: RolloutSubmission,
    problems: StepProblems,
    flow: Flow,
) -> Sequence[Ready]:
    tasks = submission.tasks

    def start(chosen: Sequence[Problem], first: int = 0, attempt: int = 0) -> Sequence[asyncio.Task[TrainingGroup]]:
        pairs = zip(chosen, submission.groups(chosen, first, attempt), strict=True)
        return [tasks.create_task(flow(*pair)) for pair in pairs]

    planned = start(problems.planned)
    if not config.refill:
        return estimator.over_step(tasks, planned)
    sampling = DynamicSampling(estimator, tasks, config, submission.records.groups)

    async def fill() -> None:
        await sampling.fill(planned, lambda count, first, attempt: start(problems.more(count), first, attempt))
        await submission.services.generator.rest()

    tasks.create_task(fill())
    return sampling.slots


class DynamicSampling:
    def __init__(
        self, estimator: AdvantageEstimator, tasks: asyncio.TaskGroup, config: TrainConfig, known: Mapping[int, Group]
    ) -> None:
        """`known`: the step's groups in the journal, by slot; all are taken."""
        self._estimator, self._tasks, self._planned = estimator, tasks, config.prompts_per_step
        self._journalled = 1 + max(known, default=-1)
        self._left_out: set[int] = set()
        loop = asyncio.get_running_loop()
        self.slots: list[Ready] = [loop.create_future() for _ in range(self._planned + config.refill)]

    async def fill(self, flows: Sequence[asyncio.Task[TrainingGroup]], further: Further) -> None:
        valued: list[TrainingGroup] = []
        attempt, started = 0, flows
        while started:
            first = len(valued)
            arriving = [self._tasks.create_task(self._arrived(first + i, flow)) for i, flow in enumerate(started)]
            valued += [await group for group in arriving]
            final = self._normalised(valued) if self._estimator.over_batch else valued
            # slots that an earlier start has in the journal are taken again, so that it goes on with the same problems
            missing = self._planned - (len(valued) - len(self._left_out))
            wanted = min(max(missing, self._journalled - len(valued)), len(self.slots) - len(valued))
            attempt += 1
            started = further(wanted, len(valued), attempt) if wanted > 0 else ()
        for slot, future in enumerate(self.slots):
            if not future.done():
                future.set_result(final[slot] if slot < len(final) else None)

    async def _arrived(self, slot: int, flow: asyncio.Task[TrainingGroup]) -> TrainingGroup:
        trained = await flow
        if self._estimator.over_batch:
            return trained
        trained = self._looked_at(slot, trained)
        self.slots[slot].set_result(trained)
        return trained

    def _normalised(self, valued: Sequence[TrainingGroup]) -> Sequence[TrainingGroup]:
        kept = [slot for slot in range(len(valued)) if slot not in self._left_out]
        final = [_without_advantages(trained) for trained in valued]
        for slot, trained in zip(kept, self._estimator.normalise([valued[slot] for slot in kept]), strict=True):
            final[slot] = self._looked_at(slot, trained)
        return final

    def _looked_at(self, slot: int, trained: TrainingGroup) -> TrainingGroup:
        if not self._estimator.silent(trained):
            return trained
        self._left_out.add(slot)
        return _without_advantages(trained)


def _without_advantages(trained: TrainingGroup) -> TrainingGroup:
    of_drafts = None if trained.draft_advantages is None else np.zeros_like(trained.draft_advantages)
    advantages = np.where(trained.known, 0.0, np.nan)
    return replace(trained, advantages=advantages, draft_advantages=of_drafts, token_advantages={})
