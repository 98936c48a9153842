"""A group that is ready to learn from: its rewards, and what each of its responses is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raypoly.core.values import Float64, Group, Rollout


@dataclass(frozen=True)
class TrainingGroup:
    """A group with its rewards and advantages."""

    group: Group
    rewards: Float64
    """float64 [N]."""
    advantages: Float64
    """float64 [N]; zeros where the group is `unjudged` and the objective needs labels."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """The objective's numbers of it, by name."""
    draft_advantages: Float64 | None = None
    """float64 [D]; None where drafts are not trained."""
    valued: bool = True
    """Whether the objective gave the advantages; False where they are zeros for what is unknown."""

    @property
    def rollouts(self) -> Sequence[Rollout]:
        """What is trained on: its attempts, and its drafts where they have advantages."""
        drafts = () if self.draft_advantages is None else self.group.drafts
        return [*(draft.rollout for draft in drafts), *self.group.rollouts]

    @property
    def teaches(self) -> bool:
        """Whether any of its rows has an advantage other than zero."""
        return bool(self.advantages.any() or (self.draft_advantages is not None and self.draft_advantages.any()))
