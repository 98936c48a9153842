"""What reward functions and terms see of a group: its responses with their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from raypoly.core.values import Bool, Float64, Problem, Rollout, Verdict


@dataclass(frozen=True)
class AnsweredGroup:
    problem: Problem
    rollouts: tuple[Rollout, ...]
    """[N]."""
    verdicts: tuple[Verdict, ...]
    """[N]; none is `infra`."""
    outcome: Float64 = field(default_factory=lambda: np.zeros(0))
    """float64 [N], as terms see it; NaN where it is unknown."""
    findings: Mapping[str, Any] = field(default_factory=dict)
    """What the group's stages found out, by the stage's name; none is unknown."""
    step: int = 0
    slot: int = 0
    places: tuple[int, ...] = ()
    """[N]: each response's place in its group, from 0."""
    seed: int = 0
    """`train.seed`."""
    max_tokens: int = 0
    """`generator.max_tokens`, T_max."""

    def __post_init__(self) -> None:
        if not self.places:
            object.__setattr__(self, "places", tuple(range(len(self.rollouts))))

    @property
    def size(self) -> int:
        """N."""
        return len(self.rollouts)

    @property
    def passed(self) -> Bool:
        """bool [N]: an outcome of 1 or more."""
        found: Bool = self.outcome >= 1
        return found

    @property
    def lengths(self) -> Float64:
        """float64 [N]: the policy's own tokens of each response."""
        return np.array([rollout.length for rollout in self.rollouts], dtype=np.float64)

    def of(self, chosen: Sequence[int]) -> AnsweredGroup:
        """Some of its responses. Findings stay those of the whole group."""
        return replace(
            self,
            rollouts=tuple(self.rollouts[i] for i in chosen),
            verdicts=tuple(self.verdicts[i] for i in chosen),
            outcome=self.outcome[list(chosen)] if len(self.outcome) else self.outcome,
            places=tuple(self.places[i] for i in chosen),
        )
