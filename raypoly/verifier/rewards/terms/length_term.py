"""Short right answers: the shortest right answer of the group over the response's own tokens.

v_i = min(1, min over right j of T_j / T_i), with T tokens; a group without a right answer is unknown. Meant for
`when: passed`: among right answers the shortest has 1.
Known to go wrong: with `when: always` a wrong answer is paid for being short, up to as much as the best right one.
"""

from __future__ import annotations

import numpy as np

from raypoly.core.values import Float64
from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.terms.term import Term


class LengthTerm(Term):
    def compute(self, group: AnsweredGroup) -> Float64:
        if not group.passed.any():
            return np.full(group.size, np.nan)
        lengths = np.maximum(group.lengths, 1)
        found: Float64 = np.minimum(1.0, lengths[group.passed].min() / lengths)
        return found
