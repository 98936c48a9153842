"""Short right answers: the shortest right answer of the group over the response's own tokens.

v_i = min(1, min over right j of T_j / T_i), with T tokens; a group without a right answer is unknown. With `penalty`
it is v_i - 1. Meant for `when: passed`: among right answers the shortest has 1, or 0.
Known to go wrong: without `penalty` every right answer is paid more for being right, so that a policy settles on the
answers that it gives most before it samples shorter ones (docs/rewards.md); with `penalty` and a weight above 1 a long
right answer may be worth less than a wrong one. With `when: always` a wrong answer is paid for being short.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from raypoly.core.values import Float64
from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.terms.term import Term, TermConfig


class LengthConfig(TermConfig):
    penalty: bool = Field(False, description="One less: the shortest right answer has 0, longer ones below.")


class LengthTerm(Term):
    Config = LengthConfig

    def compute(self, group: AnsweredGroup) -> Float64:
        if not group.passed.any():
            return np.full(group.size, np.nan)
        lengths = np.maximum(group.lengths, 1)
        found: Float64 = np.minimum(1.0, lengths[group.passed].min() / lengths)
        return found - 1.0 if self.config.penalty else found
