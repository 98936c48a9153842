"""Training rows of random tokens for the random model, and the normalisers of their step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats

NORMALISERS = Normalisers(prompts=2, rollouts=4, t_max=16)


def random_rows(seed: int = 0) -> list[TrainingRow]:
    rng = np.random.default_rng(seed)

    def row() -> TrainingRow:
        tokens = rng.integers(2, 200, rng.integers(1, 16)).astype(np.int32)
        prompt = rng.integers(2, 200, rng.integers(1, 20)).astype(np.int32)
        return TrainingRow(prompt, tokens, np.full(len(tokens), -3.0, np.float32), float(rng.normal()), 0)

    return [row() for _ in range(8)]


def update(one: PolicyLearner, rows: Sequence[TrainingRow]) -> UpdateStats:
    """The learner's next step, of these rows."""
    one.begin(one.version, NORMALISERS)
    one.accumulate(rows)
    return one.apply()
