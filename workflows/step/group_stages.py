"""What happens to a group between engine and learner: score, judge, value; each stage durable before the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import numpy as np

from actors.judge import JudgeClient
from actors.scorer import ScorerPool
from raypoly.config import Config
from raypoly.errors import JudgeRefused, RaypolyError
from raypoly.objectives import Batch, Objective
from raypoly.objectives.behaviour import outcome_of, statements_of
from raypoly.objectives.objective_hooks import measures_of
from raypoly.rewards import reward_function
from raypoly.seeds import derive
from raypoly.store.step_records import Judged, Record, Scored
from raypoly.values import Float64, Group, Labels, Problem, Verdict
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.step.group_verdicts import verdicts_of
from workflows.step.learner_session import TrainingGroup
from workflows.step.skipped_groups import SkippedGroups, skip_reason
from workflows.step.stopwatch import Stopwatch

SAMPLED_SHARE = 10
"""With `judge.when=sampled`, one group in this many is judged."""


Commit = Callable[[Record], Awaitable[None]]
"""Makes a record durable."""


class Stages:
    """The stages of a group, over the run's scorers and judge."""

    def __init__(
        self,
        config: Config,
        objective: Objective,
        scorers: ScorerPool,
        judge: JudgeClient,
        patience: JudgeOutagePause,
        aside: SkippedGroups,
    ) -> None:
        self._config, self._objective = config, objective
        self._scorers, self._judge, self._patience, self._aside = scorers, judge, patience, aside
        self._reward = reward_function(config)

    @property
    def judging(self) -> bool:
        """Whether training asks the judge at all."""
        return "labels" in self._objective.needs or self._config.judge.when != "needed"

    async def score(
        self, group: Group, problem: Problem, watch: Stopwatch, commit: Commit, training: bool = True
    ) -> Group:
        """The group with its verdicts, or set aside; in training too many such groups end the run."""
        if group.verdicts is not None:
            self._aside.count(1, int(training and skip_reason(group) is not None))
            return group
        with watch.stage("score", group.slot):
            verdicts = await verdicts_of(group, problem, self._scorers, self._aside, group.slot)
        scored = replace(group, verdicts=verdicts)
        if training:
            self._aside.count(1, int(skip_reason(scored) is not None))
        await commit(Scored(group.step, group.slot, verdicts))
        watch.done("score")
        return scored

    async def judge(self, group: Group, problem: Problem, watch: Stopwatch, commit: Commit) -> Group:
        """The group with its labels, or `unjudged`; as it is where nobody asked for labels."""
        if group.labels is not None or group.unjudged or skip_reason(group) or not self._wanted(group):
            return group
        with watch.stage("judge", group.slot):
            labels = await self.label(problem, group)
        await commit(Judged(group.step, group.slot, labels))
        watch.done("judge")
        return replace(group, labels=labels, unjudged=labels is None)

    async def label(self, problem: Problem, group: Group) -> Labels | None:
        """The judge's labels, waiting out any outage; None where it answered and can't label this group."""
        verdicts = _verdicts(group)
        try:
            labels: Labels = await self._patience.ask(lambda: self._judge.label(problem, group.rollouts, verdicts))
        except JudgeRefused:
            return None
        if len(labels.ids) != group.size or not labels.known:
            raise RaypolyError(
                f"The judge {labels.judge} gave {len(labels.ids)} labels, some unknown, for {group.size} rollouts of "
                f"{problem.id}: a judge that can't label a group must raise JudgeRefused."
            )
        return labels

    def value(self, group: Group, problem: Problem) -> TrainingGroup:
        """The group with rewards and advantages; rewards are NaN where it is set aside."""
        if skip_reason(group):
            return TrainingGroup(group, np.full(group.size, np.nan), np.zeros(group.size))
        verdicts = _verdicts(group)
        rewards = np.array(
            [self._reward(problem, r, v) for r, v in zip(group.rollouts, verdicts, strict=True)], dtype=np.float64
        )
        if "labels" in self._objective.needs and group.labels is None:
            return TrainingGroup(group, rewards, np.zeros(group.size))
        advantages = self._advantages(rewards, group)
        return TrainingGroup(group, rewards, advantages, measures_of(self._objective))

    @property
    def over_batch(self) -> bool:
        """Whether advantages are final only when every group of the step is valued."""
        return type(self._objective).finish is not Objective.finish

    def silent(self, trained: TrainingGroup) -> bool:
        """Whether a group with final advantages teaches nothing."""
        return self._objective.silent(trained.rewards, trained.advantages)

    def finish(
        self, tasks: asyncio.TaskGroup, flows: Sequence[asyncio.Task[TrainingGroup]]
    ) -> Sequence[asyncio.Task[TrainingGroup]]:
        """The groups with their final advantages: the flows themselves, but for objectives that normalise over the
        batch, whose groups are ready when all are."""
        if not self.over_batch:
            return flows
        finished = tasks.create_task(self._finish(flows))

        async def one(slot: int) -> TrainingGroup:
            return (await finished)[slot]

        return [tasks.create_task(one(slot)) for slot in range(len(flows))]

    async def _finish(self, flows: Sequence[asyncio.Task[TrainingGroup]]) -> Sequence[TrainingGroup]:
        return self.finished([await flow for flow in flows])

    def finished(self, groups: Sequence[TrainingGroup]) -> Sequence[TrainingGroup]:
        """All of a step's groups with the advantages that normalising over them gives."""
        sound = [trained for trained in groups if self.counts(trained.group)]
        batch = Batch.of((trained.advantages for trained in sound), (_lengths(trained.group) for trained in sound))
        final = iter(self._objective.finish(batch))
        return [replace(t, advantages=next(final)) if self.counts(t.group) else t for t in groups]

    def counts(self, group: Group) -> bool:
        """Whether a group that was scored and judged has advantages; else they are zeros that no mean may see."""
        unlabelled = "labels" in self._objective.needs and group.labels is None
        return not unlabelled and skip_reason(group) is None

    def _advantages(self, rewards: Float64, group: Group) -> Float64:
        labels, verdicts, needs = group.labels, _verdicts(group), self._objective.needs
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
        )

    def _wanted(self, group: Group) -> bool:
        when = self._config.judge.when
        if "labels" in self._objective.needs or when == "always":
            return True
        seed = derive(self._config.train.seed, "judge", group.step, group.slot)
        return when == "sampled" and seed % SAMPLED_SHARE == 0


def _lengths(group: Group) -> list[int]:
    """Response tokens, [N]."""
    return [len(rollout.tokens) for rollout in group.rollouts]


def _verdicts(group: Group) -> Sequence[Verdict]:
    if group.verdicts is None or any(verdict.status == "infra" for verdict in group.verdicts):
        raise RaypolyError(f"step {group.step}, slot {group.slot}: a group without sound verdicts went on")
    return group.verdicts
