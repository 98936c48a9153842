"""What the learner gets of a step's groups: those that count, in pieces that each belong to one update.

rows = UpdateRows(config)
counted = [group for group in ready if rows.counts(group)]
for piece in rows.pieces(counted, taken):          # `taken`: of the step, so far
    if rows.begins_update(taken): ...              # the mini-batch before it is full
    rows.of(piece)
    taken += len(piece)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from raypoly.algorithms import objectives
from raypoly.algorithms.losses import Loss, of_run
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.algorithms.objectives.objective_hooks import needed_stages
from raypoly.core.config import Config
from raypoly.learner.training_rows import TrainingRow, group_rows
from raypoly.rollouts.planned_rows import planned_rows
from workflows.step.skipped_groups import skip_reason
from workflows.step.training_group import TrainingGroup


class UpdateRows:
    """By the config of a run, so that a replay cuts as the step did."""

    def __init__(self, config: Config) -> None:
        self._config = config

    @cached_property
    def loss(self) -> Loss:
        return of_run(self._config)

    @cached_property
    def normalisers(self) -> Normalisers:
        train = self._config.train
        return Normalisers(train.prompts_per_update, planned_rows(self._config), self._config.generator.max_tokens)

    def counts(self, trained: TrainingGroup) -> bool:
        """Whether the learner gets the group: one that was skipped is left out, its tokens and its KL and entropy terms
        too, and with `train.refill` one without any advantage. So is one whose advantages are unknown where the loss
        would fit their zeros."""
        if skip_reason(trained.group) is not None:
            return False
        if self.loss.fits_advantages and not all(
            map(trained.group.knows, needed_stages(objectives.of_run(self._config)))
        ):
            return False
        return not self._config.train.refill or trained.teaches

    def begins_update(self, taken: int) -> bool:
        """Whether the first `taken` groups of a step fill its mini-batches so far, and there are some."""
        return taken > 0 and taken % self._config.train.prompts_per_update == 0

    def pieces(self, groups: Sequence[TrainingGroup], taken: int) -> Iterator[Sequence[TrainingGroup]]:
        """Cut groups that follow the step's first `taken` into calls, each short and within one mini-batch."""
        piece: list[TrainingGroup] = []
        tokens = 0
        for number, trained in enumerate(groups, taken):
            own = sum(len(rollout.tokens) for rollout in trained.rollouts)
            if piece and (self.begins_update(number) or tokens + own > self._config.train.token_budget):
                yield piece
                piece, tokens = [], 0
            piece.append(trained)
            tokens += own
        if piece:
            yield piece

    def of(self, piece: Sequence[TrainingGroup]) -> list[TrainingRow]:
        """The rows of its responses."""
        both = self._trains_attempts
        return [row for t in piece for row in group_rows(t.group, t.advantages, t.draft_advantages, both)]

    @cached_property
    def _trains_attempts(self) -> bool:
        return objectives.of_run(self._config).trains_attempts
