"""Groups between their stages and the learner: skipped, or with rewards and advantages, or rows of an update.

A skipped group has tests that can't be run, or a stage that can't work on it: `infra` verdicts throughout, or a
`Skipped` finding, in the journal too. It has no reward and no gradient, and the batch's divisor stays. Where too many
are skipped, the run ends before it commits another one (`run.max_set_aside`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from raypoly.algorithms.losses import Loss
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.algorithms.objectives import Objective
from raypoly.algorithms.objectives.objective import needed_stages
from raypoly.core.config import Config
from raypoly.core.errors import BrokenTests, IsolationMissing, SandboxError, TooManySetAside, UsageError
from raypoly.core.values import Bool, Float32, Float64, Group, Problem, Rollout, Skipped, Verdict
from raypoly.learner.training_rows import TrainingRow, group_rows
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.rollouts.scaffolds.run_scaffolds import planned_rows

REWARD = "reward"
"""The stage that finds out outcomes and terms."""
TRIES = 3
WAIT_SECONDS = 0.5
"""Seconds before the second try; twice that before the third."""
_ALWAYS_ALLOWED = 3  # groups that may be skipped whatever their share: at the start two of few would be too many


class SkippedGroups:
    def __init__(self, limit: float, note: Callable[[str], None]) -> None:
        self._limit, self._note = limit, note
        self._reasons: dict[str, str] = {}  # by problem. The next start tries again.
        self.groups = self._skipped = 0

    async def verdicts(
        self, problem: Problem, size: int, score: Callable[[], Awaitable[Sequence[Verdict]]]
    ) -> tuple[Verdict, ...]:
        """Verdicts of `score`; after three tries `infra` where it still fails. Raises `IsolationMissing`, which no
        problem causes."""
        if problem.id not in self._reasons:
            for attempt in range(TRIES):
                try:
                    verdicts = tuple(await score())
                    if attempt + 1 == TRIES or all(verdict.status != "infra" for verdict in verdicts):
                        return verdicts
                except IsolationMissing:
                    raise
                except (BrokenTests, SandboxError) as error:
                    reason = " ".join(str(error).split())
                if attempt + 1 < TRIES:
                    await asyncio.sleep(WAIT_SECONDS * 2**attempt)
            if problem.id not in self._reasons:
                self._reasons[problem.id] = reason
                self._note(f"Problem {problem.id} is set aside after {TRIES} tries: {reason}")
        return tuple(Verdict("infra", 0, 0, 0.0, self._reasons[problem.id]) for _ in range(size))

    def count(self, groups: int, skipped: int, reason: str = "") -> None:
        """Count scored groups, of earlier starts too. `reason`: why another stage than `score` skips the group. Raises
        `TooManySetAside`."""
        self.groups += groups
        self._skipped += skipped
        if skipped and self._skipped > max(_ALWAYS_ALLOWED, self._limit * self.groups):
            what, advice = "are skipped", "Mend what the stage asks"
            if not reason:
                problem, why = next(reversed(self._reasons.items()), ("", "see the rows of metrics.jsonl"))
                reason, what = f"{why.rstrip('.')} (problem {problem})", "have tests that can't be run"
                advice = "Mend the tests that raypoly score --validate names in their file (same rows, same ids)"
            raise TooManySetAside(
                f"{reason}: {self._skipped} of {self.groups} groups {what}, more than run.max_set_aside="
                f"{self._limit:g}. {advice}, or raise run.max_set_aside, and give the same command again: everything "
                "committed is kept. problems.exclude leaves such problems out of a new run."
            )


def infra_reason(verdicts: Sequence[Verdict] | None) -> str | None:
    """Why none of a group's programs could be scored."""
    if verdicts and all(verdict.status == "infra" for verdict in verdicts):
        return verdicts[0].detail
    return None


def skip_reason(group: Group) -> str | None:
    """Why a group is left out of the update; None if it is not."""
    skipped = (part.reason for part in group.findings.values() if isinstance(part, Skipped))
    return next(skipped, infra_reason(group.verdicts))


def scored_places(group: Group) -> list[int]:
    """The rollouts that have a verdict, by their place in the group: all but those of `infra`."""
    return [place for place, verdict in enumerate(group.verdicts or ()) if verdict.status != "infra"]


def scored_rollouts(group: Group) -> tuple[list[int], list[Rollout], list[Verdict]]:
    """`scored_places`, with the rollouts there and their verdicts."""
    places, verdicts = scored_places(group), group.verdicts or ()
    return places, [group.rollouts[place] for place in places], [verdicts[place] for place in places]


def spread_out(values: Float64, places: Sequence[int] | Bool, size: int) -> Float64:
    """Float64 [N] of the values of these places; NaN elsewhere."""
    if len(values) == size:
        return values
    out = np.full(size, np.nan)
    out[places] = values
    return out


@dataclass(frozen=True)
class TrainingGroup:
    group: Group
    rewards: Float64
    """Float64 [N]: outcomes, without terms; NaN where they are unknown or not read."""
    advantages: Float64
    """Float64 [N]; zeros where the group is `unjudged` and the objective needs labels. NaN where the rollout's outcome
    is unknown: it is left out of the update. The mean of `token_advantages` where it has those."""
    measures: Mapping[str, float] = field(default_factory=dict)
    draft_advantages: Float64 | None = None
    """Float64 [D]; None if drafts are not trained."""
    valued: bool = True
    """False where the advantages are zeros for what is unknown."""
    unknown_outcomes: int = 0
    """Rollouts without a verdict or an outcome, of a group that is not skipped."""
    by_terms: bool = False
    """Whether it would teach nothing by its outcomes alone, without the terms of the reward."""
    token_advantages: Mapping[int, Float32] = field(default_factory=dict)
    """Float32 [T] by place in the group: the rollouts that have one advantage a token."""

    @property
    def rollouts(self) -> Sequence[Rollout]:
        """Its attempts, and its drafts where they have advantages."""
        drafts = () if self.draft_advantages is None else self.group.drafts
        return [*(draft.rollout for draft in drafts), *self.group.rollouts]

    @property
    def known(self) -> Bool:
        """Bool [N]: the rollouts that are not left out."""
        found: Bool = ~np.isnan(self.advantages)
        return found

    @property
    def unknown(self) -> bool:
        """Whether the group is left out as a whole: it has too few known outcomes."""
        return bool(self.group.size) and not self.known.any()

    @property
    def teaches(self) -> bool:
        drafts = self.draft_advantages
        numbers = self.advantages if drafts is None else np.concatenate([self.advantages, drafts])
        return bool(np.nan_to_num(numbers).any()) or any(map(np.any, self.token_advantages.values()))


class UpdateRows:
    """Rows of training groups for the learner: of those that count, in pieces that each belong to one update.

    counted = [group for group in ready if rows.counts(group)]
    for piece in rows.pieces(counted, taken):          # `taken`: of the step, so far
        if rows.begins_update(taken): ...              # the mini-batch before it is full
        rows.of(piece)
        taken += len(piece)

    A replay cuts as the step did: all follows from the config.
    """

    def __init__(self, config: Config, objective: Objective, loss: Loss, scaffold: Scaffold) -> None:
        train = self._train = config.train
        self.loss = loss
        self._needed, self._trains_attempts = needed_stages(objective), objective.trains_attempts
        rows = planned_rows(objective, scaffold, train.rollouts)
        self.normalisers = Normalisers(train.prompts_per_update, rows, config.generator.max_tokens)
        # what nobody sampled is learned as the model itself gives it
        self.temperature = config.generator.temperature if scaffold.samples else 1.0

    def counts(self, trained: TrainingGroup) -> bool:
        """Left out are a skipped group, and one of unknown outcomes, with its KL and entropy terms; one without any
        advantage, with `train.refill`; and one of unknown advantages where the loss would fit their zeros."""
        if trained.unknown or skip_reason(trained.group) is not None:
            return False
        asked = {*self._needed, *({REWARD} & trained.group.findings.keys())}
        if self.loss.fits_advantages and not all(map(trained.group.knows, asked)):
            return False
        return not self._train.refill or trained.teaches

    def begins_update(self, taken: int) -> bool:
        """Whether the step's first `taken` groups fill its mini-batches."""
        return taken > 0 and taken % self._train.prompts_per_update == 0

    def pieces(self, groups: Sequence[TrainingGroup], taken: int) -> Iterator[Sequence[TrainingGroup]]:
        """Cut groups after the step's first `taken` into calls, each short and within one mini-batch."""
        piece: list[TrainingGroup] = []
        tokens = 0
        for number, trained in enumerate(groups, taken):
            own = sum(len(rollout.tokens) for rollout in trained.rollouts)
            if piece and (self.begins_update(number) or tokens + own > self._train.token_budget):
                yield piece
                piece, tokens = [], 0
            piece.append(trained)
            tokens += own
        if piece:
            yield piece

    def of(self, piece: Sequence[TrainingGroup]) -> list[TrainingRow]:
        both = self._trains_attempts
        if self.loss.fits_advantages and any(trained.token_advantages for trained in piece):
            raise UsageError(
                "The loss fits one advantage a response, and the objective or a stage gives one a token: choose "
                "another loss than flowrl (docs/credit.md)."
            )
        return [
            row
            for t in piece
            for row in group_rows(t.group, t.advantages, t.draft_advantages, both, t.token_advantages)
        ]
