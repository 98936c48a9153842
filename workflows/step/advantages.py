"""The advantage estimator: from a group's verdicts, labels and other findings to rewards and advantages.

    trained = estimator.estimate(group, problem)          # TrainingGroup, as one group alone says
    ready = estimator.over_step(tasks, flows)             # those whose advantages are final, for the learner

A group that is skipped, or of which a needed finding is unknown, has advantages of zero; the batch's divisor stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from raypoly.algorithms.objectives import Batch, Objective, ScoredGroup
from raypoly.algorithms.objectives.behaviour import outcome_of, statements_of
from raypoly.algorithms.objectives.objective import measures_of, needed_stages
from raypoly.core.values import Draft, Float64, Group, Int32, Problem
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.verifier.rewards import Reward, group_rewards, reads_findings
from workflows.step.training_group import TrainingGroup, skip_reason, sound_verdicts


class AdvantageEstimator:
    def __init__(self, objective: Objective, scaffold: Scaffold, reward: Reward) -> None:
        self._objective, self._scaffold, self._reward = objective, scaffold, reward
        self._needed, self._reads_findings = needed_stages(objective), reads_findings(self._reward)

    def estimate(self, group: Group, problem: Problem) -> TrainingGroup:
        """The group with rewards and advantages, float64 [N] each. Rewards are NaN where the group is skipped, or reads
        a finding that is unknown, or where the objective reads no rewards."""
        if skip_reason(group) or self._reward_is_unknown(group):
            return TrainingGroup(group, np.full(group.size, np.nan), np.zeros(group.size), valued=False)
        rewards = self._rewards(group, problem)
        if not self.has_advantages(group):
            return TrainingGroup(group, rewards, np.zeros(group.size), valued=False)
        scored = self._scored(rewards, group)
        advantages = self._objective.valued(scored)
        of_drafts = self._of_drafts(scored, advantages)
        return TrainingGroup(group, rewards, advantages, measures_of(self._objective), of_drafts)

    def _rewards(self, group: Group, problem: Problem) -> Float64:
        """Float64 [N]: NaN where the objective reads none; empty for a scaffold that solves nothing."""
        if not self._objective.reads_rewards or not group.size:
            return np.full(group.size, np.nan)
        return group_rewards(self._reward, problem, group.rollouts, sound_verdicts(group), _known(group))

    def has_advantages(self, group: Group) -> bool:
        """Whether the advantages of a group that passed its stages are no mere zeros, which no mean may use."""
        if skip_reason(group) is not None or self._reward_is_unknown(group):
            return False
        return all(map(group.knows, self._needed))

    def _reward_is_unknown(self, group: Group) -> bool:
        return self._reads_findings and self._objective.reads_rewards and not all(map(group.knows, group.findings))

    @property
    def over_batch(self) -> bool:
        return type(self._objective).finish is not Objective.finish

    def silent(self, trained: TrainingGroup) -> bool:
        """Whether a group with final advantages teaches nothing."""
        of_drafts = trained.draft_advantages
        return self._objective.silent(trained.rewards, trained.advantages) and (
            of_drafts is None or self._objective.silent(np.ones_like(of_drafts), of_drafts)
        )

    def over_step(
        self, tasks: asyncio.TaskGroup, flows: Sequence[asyncio.Task[TrainingGroup]]
    ) -> Sequence[asyncio.Task[TrainingGroup]]:
        """The step's groups with final advantages: the flows, or for objectives that normalise over the batch their
        groups when all are there."""
        if not self.over_batch:
            return flows

        async def finish() -> Sequence[TrainingGroup]:
            return self.normalise([await flow for flow in flows])

        finished = tasks.create_task(finish())

        async def one(slot: int) -> TrainingGroup:
            return (await finished)[slot]

        return [tasks.create_task(one(slot)) for slot in range(len(flows))]

    def normalise(self, groups: Sequence[TrainingGroup]) -> Sequence[TrainingGroup]:
        sound = [trained for trained in groups if trained.valued]
        batch = Batch.of((trained.advantages for trained in sound), (_lengths(trained.group) for trained in sound))
        final = iter(self._objective.finish(batch))
        return [replace(t, advantages=next(final)) if t.valued else t for t in groups]

    def _of_drafts(self, scored: ScoredGroup, advantages: Float64) -> Float64 | None:
        found = self._objective.valued_drafts(scored)
        if found is None and self._scaffold.trains_drafts and scored.drafts:
            return credited(scored.drafts, scored.draft_of, advantages)
        return found

    def _scored(self, rewards: Float64, group: Group) -> ScoredGroup:
        labels, needs = group.labels, self._objective.needs
        verdicts = sound_verdicts(group) if group.size else ()
        crossed = group.cross_logprobs
        return self._objective.scored(
            rewards=rewards if self._objective.reads_rewards else np.zeros(group.size),  # it reads no unknown ones
            labels=None if labels is None else labels.ids,
            degenerate=None if labels is None else labels.degenerate,
            lengths=_lengths(group),
            outcomes=[outcome_of(verdict) for verdict in verdicts] if "outcomes" in needs else None,
            statements=[statements_of(verdict) for verdict in verdicts] if "statements" in needs else None,
            cross_logprobs=None if crossed is None else crossed.logprobs,
            own_prompt=None if crossed is None else crossed.own_prompt,
            problem=group.problem_id,
            step=group.step,
            findings=_known(group),
            drafts=group.drafts,
            draft_of=group.draft_of,
        )


def credited(drafts: Sequence[Draft], draft_of: Int32 | None, advantages: Float64) -> Float64:
    """Mean advantage of the attempts that each draft led to, by its descendants too, float64 [D]; 0 for none."""
    sums, counts = np.zeros(len(drafts)), np.zeros(len(drafts))
    for place, advantage in zip([] if draft_of is None else draft_of.tolist(), advantages, strict=True):
        while place is not None and place >= 0:
            sums[place] += advantage
            counts[place] += 1
            place = drafts[place].parent
    found: Float64 = sums / np.maximum(counts, 1)
    return found


def _lengths(group: Group) -> list[int]:
    return [len(rollout.tokens) for rollout in group.rollouts]


def _known(group: Group) -> Mapping[str, Any]:
    return {name: finding for name, finding in group.findings.items() if group.knows(name)}
