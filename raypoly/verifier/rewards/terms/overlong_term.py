"""Soft overlong punishment (DAPO, arXiv 2503.14476, equation 13).

v_i = 0 where T_i <= T_max - buffer, -1 where T_i >= T_max, and linear between; T_i tokens, T_max
`generator.max_tokens`. The paper's T_max is 20,480 with a buffer of 4,096, its weight 1.
Known to go wrong: a response that needs its length is punished too, right or not.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from raypoly.core.values import Float64
from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.terms.term import Term, TermConfig


class OverlongConfig(TermConfig):
    buffer: int | None = Field(
        None, ge=1, description="Tokens before generator.max_tokens in which it falls. Default: a fifth of these."
    )


class OverlongTerm(Term):
    Config = OverlongConfig

    def compute(self, group: AnsweredGroup) -> Float64:
        buffer = self.config.buffer or max(1, group.max_tokens // 5)
        found: Float64 = np.clip((group.max_tokens - buffer - group.lengths) / buffer, -1.0, 0.0)
        return found
