"""Training rows: one response each, with its advantage and the log-probabilities of its sampler. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raypoly.core.values import Bool, Float32, Float64, Group, Int32, Rollout

_NONE: Mapping[int, Float32] = {}


@dataclass(frozen=True)
class TrainingRow:
    """One response, without objective, reward or label."""

    prompt_tokens: Int32
    tokens: Int32
    sampler_logprobs: Float32
    """float32 [T], after temperature; NaN throughout if the response was given."""
    advantage: float | Float32
    """A number for all trained tokens, or float32, one each."""
    weight_version: int
    """The weights that sampled it. Staleness is the learner's version minus this one: 0 on-policy."""
    mask: Bool | None = None
    """bool [T]: the tokens that are trained; None: all. The others are read, as a prompt is."""

    @property
    def given(self) -> bool:
        """Whether nobody sampled the response."""
        return bool(len(self.tokens)) and bool(np.isnan(self.sampler_logprobs).all())

    @property
    def has_advantage(self) -> bool:
        """Whether any of its tokens has an advantage that is not zero."""
        return bool(np.any(self.advantage))

    @property
    def trained(self) -> int:
        """Tokens that are trained."""
        return len(self.tokens) if self.mask is None else int(np.count_nonzero(self.mask))

    @property
    def length(self) -> int:
        """Prompt and response, in tokens."""
        return len(self.prompt_tokens) + len(self.tokens)


def group_rows(
    group: Group,
    advantages: Float64,
    of_drafts: Float64 | None,
    attempts: bool = True,
    tokens: Mapping[int, Float32] = _NONE,
) -> list[TrainingRow]:
    """Rows of a group's drafts, if they have advantages (float64 [D]), and of its attempts; none for an advantage of
    NaN. `tokens`: float32 [T] by place, in place of the attempt's number."""
    trained = group.rollouts if attempts else ()
    credit = [tokens.get(place, advantages[place]) for place in range(len(trained))]
    if of_drafts is None:
        return rows_of(trained, credit)
    return rows_of([*(draft.rollout for draft in group.drafts), *trained], [*of_drafts, *credit])


def rows_of(rollouts: Sequence[Rollout], advantages: Sequence[float | Float32] | Float64) -> list[TrainingRow]:
    """Rows ordered by prompt (by first use) and rollout; none for an advantage of NaN."""
    rows = [
        TrainingRow(
            rollout.prompt_tokens,
            rollout.tokens,
            rollout.logprobs,
            advantage if np.ndim(advantage) else float(advantage),
            rollout.weight_version,
            rollout.mask,
        )
        for rollout, advantage in zip(rollouts, advantages, strict=True)
    ]
    _, own = prompts_of(rollouts)
    return [rows[i] for i in np.argsort(own, kind="stable") if not np.isnan(rows[i].advantage).any()]


def prompts_of(rollouts: Sequence[Rollout]) -> tuple[list[Int32], Int32]:
    """The P distinct prompts in order of first use, and each rollout's index among them, int32 [N]."""
    numbers: dict[bytes, int] = {}
    own = [numbers.setdefault(rollout.prompt_tokens.tobytes(), len(numbers)) for rollout in rollouts]
    firsts = np.unique(own, return_index=True)[1]
    return [rollouts[i].prompt_tokens for i in firsts], np.array(own, np.int32)
