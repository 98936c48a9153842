"""Rollouts that are compared with their peers alone: those of the same role behind the same draft."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from raypoly.algorithms.objectives.grpo import Deviation, relative
from raypoly.core.values import Float64


def compare_with_peers(values: Sequence[float] | Float64, peers: Sequence[Hashable], std: Deviation) -> Float64:
    """Each value less the mean of its peers, divided by their deviation as `relative` does; float64 [N], in the order
    of the values.

    `peers`: who is compared with whom, [N]; equal entries are peers, as two ("solve", 0) are. One that is alone gets 0.
    Raises `ValueError` where there are not as many as values.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.shape != (len(peers),):
        raise ValueError(f"each of {len(peers)} rollouts needs one value, got an array of shape {given.shape}")
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, peer in enumerate(peers):
        places[peer].append(place)
    out = np.zeros(len(peers))
    for members in places.values():
        out[members] = relative(given[members], std)
    return out
