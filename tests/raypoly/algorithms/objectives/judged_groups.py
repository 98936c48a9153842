"""Judged groups to try objectives on, with their rollouts reordered or two strategies merged."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from raypoly.algorithms.objectives import Objective
from raypoly.core.values import Float64


@dataclass(frozen=True)
class Judged:
    """N rewards of 0 or 1 with raw strategy labels; 100 is degenerate."""

    rewards: tuple[int, ...]
    labels: tuple[int, ...]

    def advantages(self, objective: Objective) -> Float64:
        return objective.advantages(rewards=self.rewards, labels=self.labels)

    def ordered(self, order: list[int]) -> Judged:
        return Judged(tuple(self.rewards[i] for i in order), tuple(self.labels[i] for i in order))

    def merged(self) -> Judged:
        """The group with strategies 1 and 2 merged into one."""
        return replace(self, labels=tuple(1 if label == 2 else label for label in self.labels))

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and the degenerate mask, as an objective gets them."""
        labels = np.array(self.labels, dtype=np.int32)
        return labels, labels == 100


judged = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([1, 2, 3, 4, 100])), min_size=2, max_size=9).map(
    lambda rollouts: Judged(*(tuple(column) for column in zip(*rollouts, strict=True)))
)
"""Any group of two to nine."""


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[Judged, list[int]]:
    """A group and another order of its rollouts."""
    group = draw(judged)
    return group, draw(st.permutations(range(len(group.rewards))))
