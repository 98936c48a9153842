"""The advantage estimator: from a group's verdicts, labels and other findings to rewards and credit.

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

from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.objectives import Batch, Credit, Objective, ScoredGroup
from raypoly.algorithms.objectives.behaviour import outcome_of, statements_of
from raypoly.algorithms.objectives.objective import Advantages, needed_stages
from raypoly.core.config import CreditSection
from raypoly.core.errors import UsageError
from raypoly.core.token_arrays import TokensByPlace
from raypoly.core.values import (
    UNKNOWN,
    WITHOUT_TESTS,
    Bool,
    CrossLogprobs,
    Float32,
    Float64,
    Group,
    Labels,
    Problem,
    Rollout,
)
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.verifier.rewards import Rewards
from workflows.step.stages.reward_stage import RewardStage
from workflows.step.training_group import TrainingGroup, scored_places, skip_reason, spread_out

_EVERY_TURN = CreditSection()
_LARGEST = 1e30
"""What a token may be worth: float32 still holds sums of it."""
_LIMITS = ("length", "turns", "tool_seconds")


class AdvantageEstimator:
    def __init__(
        self,
        objective: Objective,
        scaffold: Scaffold,
        rewards: Rewards,
        stages: Sequence[GroupStage] = (),
        by_turn: CreditSection = _EVERY_TURN,
    ) -> None:
        """`stages`: those of the run, whose findings follow the rollouts that are left."""
        self._by_turn = by_turn
        self._objective, self._scaffold, self._rewards = objective, scaffold, rewards
        self._crediting = [stage for stage in stages if stage.gives_credit]
        self._needed = needed_stages(objective) | {stage.name for stage in self._crediting}
        self._axes = {stage.name: stage.axis for stage in stages}
        self._in_stage = rewards.in_stage and objective.reads_rewards

    def estimate(self, group: Group, problem: Problem) -> TrainingGroup:
        """The group with rewards and advantages, float64 [N] each. Rewards are NaN where the group is skipped, or reads
        a finding that is unknown, or where the objective reads no rewards.

        A rollout of unknown outcome has an advantage of NaN, and no part in the others'; all have where too few are
        known.
        """
        if skip_reason(group) or self._reward_is_unknown(group):
            unknown = group.size if skip_reason(group) is None else 0
            zeros = np.zeros(group.size)
            return TrainingGroup(group, np.full(group.size, np.nan), zeros, valued=False, unknown_outcomes=unknown)
        rewards, dropped = self._without_cut(group, self._outcome(group, problem))
        known = [place for place in self._known_places(group, rewards) if not dropped[place]]
        unknown = group.size - len(known) - int(dropped.sum())
        if not self._enough(known, group):
            return TrainingGroup(group, rewards, np.full(group.size, np.nan), valued=False, unknown_outcomes=unknown)
        if not self.has_advantages(group):
            zeros = spread_out(np.zeros(len(known)), known, group.size)
            if any(group.findings.get(stage.name) is UNKNOWN for stage in self._crediting):
                unknown = group.size
            return TrainingGroup(group, rewards, zeros, valued=False, unknown_outcomes=unknown)
        scored = self._scored(rewards, group, known)
        credit = self._objective.valued(scored)
        trained = TrainingGroup(
            group,
            rewards,
            spread_out(credit.numbers, known, group.size),
            credit.measures,
            credit.drafts,
            unknown_outcomes=unknown,
            by_terms=bool(scored.terms) and self._silent_without_terms(scored, credit.numbers),
            token_advantages=_kept({known[place]: tokens for place, tokens in credit.tokens.items()}),
        )
        return trained if self.over_batch else self._with_stages(trained)

    def _with_stages(self, trained: TrainingGroup) -> TrainingGroup:
        """The group with the credit that stages add to its final advantages."""
        if not trained.valued or trained.unknown:
            return trained
        trained = self._with_turns(trained)
        if not self._crediting:
            return trained
        group, places = trained.group, np.flatnonzero(trained.known).tolist()
        added = [credit for stage in self._crediting if (credit := _credit_of(stage, group)) is not None]
        final = [
            np.asarray(entry + sum(credit[place] for credit in added), np.float32)
            for place, entry in zip(places, _attempts_of(trained), strict=True)
        ]
        return _with_attempts(trained, Credit(final)) if added else trained

    def _with_turns(self, trained: TrainingGroup) -> TrainingGroup:
        """The group with its advantages spread over the turns of conversations, as `credit.turns` says."""
        if self._by_turn.turns == "all":
            return trained
        places = np.flatnonzero(trained.known).tolist()
        spread = [
            entry if np.ndim(entry) else credit_by_turn(trained.group.rollouts[place], float(entry), self._by_turn)
            for place, entry in zip(places, _attempts_of(trained), strict=True)
        ]
        return _with_attempts(trained, Credit(spread)) if any(map(np.ndim, spread)) else trained

    def _silent_without_terms(self, scored: ScoredGroup, advantages: Float64) -> bool:
        """Whether the group would teach nothing by its outcomes alone."""
        if self._objective.terms != "beside":
            return bool(np.ptp(scored.rewards if scored.outcome is None else scored.outcome) == 0)
        return self._objective.silent(scored.rewards, advantages - scored.beside)

    def _outcome(self, group: Group, problem: Problem) -> Float64:
        """Float64 [N]: NaN where it is unknown, or the objective reads none; empty for a scaffold that solves
        nothing."""
        if not self._objective.reads_rewards or not group.size:
            return np.full(group.size, np.nan)
        if self._in_stage:
            found: Float64 = group.findings[RewardStage.name]["outcome"]
            return found
        return self._rewards.outcome.of_verdicts(problem, group.rollouts, group.verdicts or ())

    def _without_cut(self, group: Group, rewards: Float64) -> tuple[Float64, Bool]:
        """Outcomes, and which rollouts `reward.when_cut=drop` leaves out, bool [N]: those that a limit ended, and that
        would have an outcome."""
        cut = np.array([rollout.finish_reason in _LIMITS for rollout in group.rollouts], np.bool_)
        sound = np.array([verdict.status != "infra" for verdict in group.verdicts or [WITHOUT_TESTS] * group.size])
        dropped: Bool = cut & sound if self._rewards.drops_cut and group.size else np.zeros(group.size, np.bool_)
        return np.where(dropped, np.nan, rewards), dropped

    def _known_places(self, group: Group, rewards: Float64) -> list[int]:
        """The rollouts with a verdict, where there are any, and an outcome, where one is read."""
        places = scored_places(group) if group.verdicts else range(group.size)
        reads = self._objective.reads_rewards
        return [place for place in places if not reads or np.isfinite(rewards[place])]

    def _enough(self, known: Sequence[int], group: Group) -> bool:
        """Whether a group can be valued by these rollouts alone: half of it, and more than a set. Not one with drafts,
        which are worth what all of their attempts are."""
        if len(known) == group.size:
            return True
        set_size = getattr(self._objective.config, "set_size", 0)
        if group.drafts or len(known) < max(set_size + 1, group.size / 2):
            return False
        try:
            self._objective.check(len(known))
        except UsageError:
            return False
        return True

    def has_advantages(self, group: Group) -> bool:
        """Whether the advantages of a group that passed its stages are no mere zeros, which no mean may use."""
        if skip_reason(group) is not None or self._reward_is_unknown(group):
            return False
        return all(map(group.knows, self._needed))

    def _reward_is_unknown(self, group: Group) -> bool:
        return self._in_stage and bool(group.size) and not group.knows(RewardStage.name)

    @property
    def over_batch(self) -> bool:
        return type(self._objective).finish is not Objective.finish

    def silent(self, trained: TrainingGroup) -> bool:
        """Whether a group with final advantages teaches nothing."""
        if trained.unknown:
            return True
        of_drafts, rewards = trained.draft_advantages, trained.rewards[trained.known]
        credit = np.concatenate([trained.advantages[trained.known], *trained.token_advantages.values()])
        return self._objective.silent(rewards, credit) and (
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
        lengths = (np.array(_lengths(trained.group))[trained.known] for trained in sound)
        final = iter(self._objective.finish(Batch.of(map(_attempts_of, sound), lengths)))
        finished = [_with_attempts(t, self._finished(t, next(final))) if t.valued else t for t in groups]
        return [self._with_stages(trained) for trained in finished]

    def _finished(self, trained: TrainingGroup, given: Advantages) -> Credit:
        known = np.flatnonzero(trained.known)
        return Credit(self._objective.checked(given, np.array(_lengths(trained.group))[known]))

    def _scored(self, rewards: Float64, group: Group, known: list[int]) -> ScoredGroup:
        """The group of these rollouts alone, as an objective sees it."""
        whole = len(known) == group.size
        group = group if whole else part_of_group(group, known, self._axes)
        rewards = rewards if whole else rewards[known]
        labels, needs, verdicts = group.labels, self._objective.needs, group.verdicts or ()
        crossed, reads = group.cross_logprobs, self._objective.reads_rewards
        found = group.findings[RewardStage.name] if self._in_stage and group.size else {}
        terms = {name: found[name] for name in self._rewards.terms if name in found and np.isfinite(found[name]).all()}
        return self._objective.scored(
            rewards=rewards if reads else np.zeros(group.size),  # it reads no unknown ones
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
            terms=terms,
            weights=self._rewards.weights,
        )


def credit_by_turn(rollout: Rollout, advantage: float, credit: CreditSection) -> float | Float32:
    """A number, or float32 [T] of the policy's own tokens: turn k of K has advantage x discount^(K - k), or only the
    last one has it."""
    own = [turn.start for turn in rollout.own_turns]
    if len(own) < 2:
        return advantage
    ends = [*own[1:], len(rollout.tokens)]
    factor = 0.0 if credit.turns == "last" else credit.discount
    weights = [advantage * factor ** (len(own) - 1 - number) for number in range(len(own))]
    found: Float32 = rollout.own(np.repeat(np.array(weights, np.float32), np.diff([*own, ends[-1]])))
    return found


def _credit_of(stage: GroupStage, group: Group) -> Sequence[Float64] | None:
    """The stage's `token_credit`. Raises `UsageError` where it is not one finite number a token."""
    found = stage.token_credit(group.findings[stage.name], group.rollouts)
    if found is None:
        return None
    fits = [np.shape(each) for each in found] == [(length,) for length in _lengths(group)]
    if not fits or not all(np.all(np.abs(each) < _LARGEST) for each in found):
        raise UsageError(
            f"token_credit() of the stage {stage.name} must give each rollout of problem {group.problem_id} a finite "
            "number for each of its own tokens: raise Unknown in run() where there is none."
        )
    return found


def _attempts_of(trained: TrainingGroup) -> Advantages:
    """As the objective gave them."""
    if not trained.token_advantages:
        return trained.advantages[trained.known]
    places = np.flatnonzero(trained.known).tolist()
    return [trained.token_advantages.get(place, float(trained.advantages[place])) for place in places]


def _with_attempts(trained: TrainingGroup, credit: Credit) -> TrainingGroup:
    """The group with the credit of its known rollouts in place of what it had."""
    places = np.flatnonzero(trained.known).tolist()
    return replace(
        trained,
        advantages=spread_out(credit.numbers, places, trained.group.size),
        token_advantages=_kept({places[place]: tokens for place, tokens in credit.tokens.items()}),
    )


def _kept(tokens: Mapping[int, Float32]) -> Mapping[int, Float32]:
    return TokensByPlace(tokens) if tokens else {}


def part_of_group(group: Group, places: list[int], axes: Mapping[str, str]) -> Group:
    """The group of some of its rollouts, with their findings. `axes`: of the stages that are not raypoly's own."""
    found = dict(group.findings)
    for name, finding in group.findings.items():
        if isinstance(finding, Labels):
            found[name] = Labels(finding.ids[places], finding.degenerate[places], finding.judge)
        elif isinstance(finding, CrossLogprobs):
            chosen = tuple(finding.logprobs[place] for place in places)
            found[name] = CrossLogprobs(finding.own_prompt[places], chosen)
        elif name == "score":
            found[name] = tuple(finding[place] for place in places)
        elif axes.get(name) in ("rollout", "token") and group.knows(name):
            many = isinstance(finding, Mapping)
            found[name] = {n: _chosen(v, places) for n, v in finding.items()} if many else _chosen(finding, places)
    chosen_rollouts = tuple(group.rollouts[place] for place in places)
    return replace(group, rollouts=chosen_rollouts, findings=found, draft_of=group.draft_of[places])


def _chosen(values: Any, places: list[int]) -> Any:
    return values[places] if isinstance(values, np.ndarray) else [values[place] for place in places]


def _lengths(group: Group) -> list[int]:
    return [rollout.length for rollout in group.rollouts]


def _known(group: Group) -> Mapping[str, Any]:
    return {name: finding for name, finding in group.findings.items() if group.knows(name)}
