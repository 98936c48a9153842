"""DIVER: in the first steps a right answer gets a bonus for statements that no other rollout of its group has.

    R_i = r_i + scale * min(e_i, cap)      where r_i > 0 and the step is below `steps`; else r_i
    e_i = share of i's own statements that are in no other rollout
    A_i = R_i - mean R                     divided by std R + 1e-6 with `std: sample`

Arxiv 2509.26209. Its e ("equ" in the released code) counts formulas of a mathematical answer; here it counts normalised
statements of the program (`behaviour.statements_of`). The paper's other bonus (1 - BLEU of the text) is left out: it
would pay for comments and names. A group of equal rewards has zero advantages, as in the paper. The released script has
scale 1 and some 100 steps; cap 0.5 is ours.

Needs statements (`scorer.evidence`) and the step; no judge. When: a cheap push away from one solution in early steps,
without a judge. Known to go wrong: text is not strategy: the same loop with one more helper is new, and dead code
counts unless the canonical form removes it; long programs have more statements to be new with; a group that all
rollouts solve learns nothing, so diversity among sure solutions is not kept. A program that does not parse has no
statements and no bonus, and takes none from others. A group may have any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.grpo import GRPO, GRPOConfig, relative
from raypoly.algorithms.objectives.objective import ScoredGroup
from raypoly.core.values import Float64


class DiverConfig(GRPOConfig):
    scale: float = Field(1.0, ge=0, description="What a right program that shares no statement is worth, in rewards.")
    cap: float = Field(0.5, ge=0, le=1, description="Share of own statements above which nothing more is paid.")
    steps: int = Field(100, ge=0, description="Steps of training with the bonus; after them it is GRPO.")


class Diver(GRPO):
    Config = DiverConfig
    config: DiverConfig
    needs = frozenset({"statements", "step"})
    terms = "beside"

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.statements is not None
        assert group.step is not None
        if np.ptp(group.rewards) == 0:
            return np.zeros(group.size)
        rewards = group.rewards
        if group.step < self.config.steps:
            bonus = np.minimum(share_unseen(group.statements), self.config.cap)
            rewards = rewards + self.config.scale * np.where(rewards > 0, bonus, 0.0)
        return relative(rewards, self.config.std)


def share_unseen(statements: Sequence[frozenset[str]]) -> Float64:
    """The share of each rollout's statements that no other rollout has, float64 [N]; 0 without statements."""
    having = Counter(statement for own in statements for statement in own)
    return np.array([sum(having[s] == 1 for s in own) / len(own) if own else 0.0 for own in statements])
