"""Chances of drawing without replacement, which the closed forms over all sets are made of."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(maxsize=65536)
def avoid(members: int, among: int, draws: int) -> float:
    """q(S; M, k) = C(M-S, k)/C(M, k): the chance that k draws without replacement from M avoid S given ones."""
    if draws < 0 or among - members < draws:
        return 0.0
    return math.comb(among - members, draws) / math.comb(among, draws)
