"""The advantage estimator: from a group's verdicts, labels and other parts to rewards and advantages.

    trained = estimator.estimate(group, problem)          # TrainingGroup, as one group alone says
    ready = estimator.over_step(tasks, flows)             # those whose advantages are final, for the learner

A group that is skipped, or of which a needed part is unknown, has advantages of zero; the batch's divisor stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from raypoly.config import Config
from raypoly.objectives import Batch, Objective
from raypoly.objectives.behaviour import outcome_of, statements_of
from raypoly.objectives.objective_hooks import measures_of, needed_stages
from raypoly.rewards import group_rewards, reads_parts, reward_function
from raypoly.values import Float64, Group, Problem
from workflows.step.learner_session import TrainingGroup
from workflows.step.skipped_groups import skip_reason, sound_verdicts


class AdvantageEstimator:
    """Computes groups' rewards and advantages by a run's reward function and objective."""

    def __init__(self, config: Config, objective: Objective) -> None:
        self._objective, self._reward = objective, reward_function(config)
        self._needed, self._reads_parts = needed_stages(objective), reads_parts(self._reward)

    def estimate(self, group: Group, problem: Problem) -> TrainingGroup:
        """The group with rewards and advantages, float64 [N] each. Rewards are NaN where the group is skipped, and
        where the reward function reads parts of which one is unknown."""
        if skip_reason(group) or self._reward_is_unknown(group):
            return TrainingGroup(group, np.full(group.size, np.nan), np.zeros(group.size))
        rewards = group_rewards(self._reward, problem, group.rollouts, sound_verdicts(group), _known(group))
        if not self.has_advantages(group):
            return TrainingGroup(group, rewards, np.zeros(group.size))
        advantages = self._advantages(rewards, group)
        return TrainingGroup(group, rewards, advantages, measures_of(self._objective))

    def has_advantages(self, group: Group) -> bool:
        """Whether a group that has passed its stages has advantages. If not, they are zeros, which no mean may use."""
        if skip_reason(group) is not None or self._reward_is_unknown(group):
            return False
        return all(map(group.knows, self._needed))

    def _reward_is_unknown(self, group: Group) -> bool:
        return self._reads_parts and not all(map(group.knows, group.parts))

    @property
    def over_batch(self) -> bool:
        """Whether advantages are final only when every group of the step has been valued."""
        return type(self._objective).finish is not Objective.finish

    def silent(self, trained: TrainingGroup) -> bool:
        """Whether a group with final advantages teaches nothing."""
        return self._objective.silent(trained.rewards, trained.advantages)

    def over_step(
        self, tasks: asyncio.TaskGroup, flows: Sequence[asyncio.Task[TrainingGroup]]
    ) -> Sequence[asyncio.Task[TrainingGroup]]:
        """The step's groups with final advantages: the flows themselves, but for objectives that normalise over the
        batch, whose groups are ready when all are."""
        if not self.over_batch:
            return flows

        async def finish() -> Sequence[TrainingGroup]:
            return self.normalise([await flow for flow in flows])

        finished = tasks.create_task(finish())

        async def one(slot: int) -> TrainingGroup:
            return (await finished)[slot]

        return [tasks.create_task(one(slot)) for slot in range(len(flows))]

    def normalise(self, groups: Sequence[TrainingGroup]) -> Sequence[TrainingGroup]:
        """All of a step's groups with the advantages that normalising over them gives."""
        sound = [trained for trained in groups if self.has_advantages(trained.group)]
        batch = Batch.of((trained.advantages for trained in sound), (_lengths(trained.group) for trained in sound))
        final = iter(self._objective.finish(batch))
        return [replace(t, advantages=next(final)) if self.has_advantages(t.group) else t for t in groups]

    def _advantages(self, rewards: Float64, group: Group) -> Float64:
        labels, verdicts, needs = group.labels, sound_verdicts(group), self._objective.needs
        crossed = group.cross_logprobs
        return self._objective.advantages(
            rewards=rewards,
            labels=None if labels is None else labels.ids,
            degenerate=None if labels is None else labels.degenerate,
            lengths=_lengths(group),
            outcomes=[outcome_of(verdict) for verdict in verdicts] if "outcomes" in needs else None,
            statements=[statements_of(verdict) for verdict in verdicts] if "statements" in needs else None,
            cross_logprobs=None if crossed is None else crossed.logprobs,
            own_prompt=None if crossed is None else crossed.own_prompt,
            problem=group.problem_id,
            step=group.step,
            parts=_known(group),
        )


def _lengths(group: Group) -> list[int]:
    """Response tokens, [N]."""
    return [len(rollout.tokens) for rollout in group.rollouts]


def _known(group: Group) -> Mapping[str, Any]:
    """The parts that are known."""
    return {name: part for name, part in group.parts.items() if group.knows(name)}
