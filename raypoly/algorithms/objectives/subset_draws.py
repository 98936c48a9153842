"""Sets drawn without replacement: all of them, some of them, and the chance that a draw avoids given members.

some_sets(N=64, n=4, K=1000, seed=7)      # int32 [1000, 4], no set twice
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import chain, combinations

import numpy as np

from raypoly.core.values import Float64, Int32

MOST_SETS = 1_000_000
"""All sets are used up to this number."""
MOST_PLACES = 2**24
"""The most members of all sets together (K * n): 64 MiB."""
_DRAWN_KEYS = 2**22


@lru_cache(maxsize=65536)
def avoid(members: int, among: int, draws: int) -> float:
    """q(S; M, k) = C(M-S, k)/C(M, k): the chance that k draws without replacement from M avoid S given ones."""
    if draws < 0 or among - members < draws:
        return 0.0
    return math.comb(among - members, draws) / math.comb(among, draws)


@lru_cache(maxsize=64)
def avoiding(most: int, among: int, draws: int) -> Float64:
    """`avoid` for 0 to `most` members, float64 [most + 1], read-only."""
    chances = np.zeros(most + 1)
    if 0 <= draws <= among:
        # C(M-S-1, k) = C(M-S, k) (M-S-k)/(M-S) in whole numbers: exact, and much cheaper than each binomial anew.
        sets = left = math.comb(among, draws)
        for members in range(min(most, among - draws) + 1):
            chances[members] = left / sets
            left = left * (among - members - draws) // max(among - members, 1)
    chances.flags.writeable = False
    return chances


def few_enough(N: int, n: int) -> bool:
    """Whether all sets of n among N can be taken one by one."""
    sets = math.comb(N, n)
    return sets <= MOST_SETS and sets * n <= MOST_PLACES


@lru_cache(maxsize=4)
def all_sets(N: int, n: int) -> Int32:
    """All sets of n among N, int32 [C(N, n), n], read-only. They must be `few_enough`."""
    members = chain.from_iterable(combinations(range(N), n))
    sets_Kn = np.fromiter(members, dtype=np.int32, count=math.comb(N, n) * n).reshape(-1, n)
    sets_Kn.flags.writeable = False
    return sets_Kn


def some_sets(N: int, n: int, K: int, seed: int) -> Int32:
    """K different sets of n among N, uniformly without replacement, int32 [K, n]; all sets if there are at most K.

    Raises `ValueError` if K * n is above `MOST_PLACES`.
    """
    if K * n > MOST_PLACES:
        raise ValueError(f"{K} sets of {n} are too many to hold: at most {MOST_PLACES // n}")
    rng = np.random.default_rng(seed)
    if few_enough(N, n):
        every_set = all_sets(N, n)
        if len(every_set) <= K:
            return every_set
        return every_set[np.sort(rng.choice(len(every_set), K, replace=False))]
    # A set drawn again is dropped, which keeps the choice uniform.
    found: dict[bytes, None] = {}
    while len(found) < K:
        found.update(dict.fromkeys(row.tobytes() for row in independent_sets(rng, N, n, K - len(found))))
    return np.frombuffer(b"".join(found), dtype=np.int32).reshape(K, n)


def independent_sets(rng: np.random.Generator, N: int, n: int, K: int) -> Int32:
    """K independent uniform sets of n different members among N, int32 [K, n], members sorted."""
    chunk = max(1, _DRAWN_KEYS // N)
    drawn = [
        np.argpartition(rng.random((min(chunk, K - start), N)), n - 1, axis=1)[:, :n] for start in range(0, K, chunk)
    ]
    return np.sort(np.concatenate(drawn), axis=1).astype(np.int32)
