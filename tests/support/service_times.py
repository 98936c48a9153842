"""How long the services take in one step, of 32 groups of 8 or as told: drawn from a seed, the same for every version
of the step.

Generation lasts 20 s. Responses are lognormal in length and are decoded at one speed, so many at once, in slot order; a
group is out when its last response is. Of the programs one in twelve is a loop that costs its limit of 5 s, the others
take some hundredths of a second. A judge's call takes 2 to 8 s, all of the learner's work 10 s, and moving the weights
1 s.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

GROUPS, ROLLOUTS = 32, 8
GENERATION, UPDATE, SYNC = 20.0, 10.0, 1.0
LOOP, LOOPS = 5.0, 1 / 12
JUDGED = (2.0, 8.0)
APPLY = 1.0
"""Of UPDATE, for clipping and the optimizer's step; the rest is the groups' in equal shares."""


@dataclass(frozen=True)
class Group:
    """Seconds."""

    generated: float
    """After the beginning of the step."""
    programs: tuple[float, ...]
    judged: float


@dataclass(frozen=True)
class Times:
    """Of one step, groups in slot order."""

    groups: tuple[Group, ...]

    @classmethod
    def drawn(cls, seed: int, at_once: int, groups: int = GROUPS, rollouts: int = ROLLOUTS) -> Times:
        """`at_once`: responses that are decoded beside each other (`generator.max_sequences`)."""
        rng = random.Random(seed)
        lengths = [[rng.lognormvariate(0.0, 0.5) for _ in range(rollouts)] for _ in range(groups)]
        drawn = (
            Group(
                generated=out,
                programs=tuple(LOOP if rng.random() < LOOPS else rng.uniform(0.02, 0.3) for _ in range(rollouts)),
                judged=rng.uniform(*JUDGED),
            )
            for out in _generated(lengths, at_once)
        )
        return cls(tuple(drawn))


def _generated(lengths: list[list[float]], at_once: int) -> list[float]:
    """When each group is out: a response begins as soon as there is room."""
    room = [0.0] * at_once
    out = []
    for group in lengths:
        ends = []
        for length in group:
            end = room[0] + length
            heapq.heapreplace(room, end)
            ends.append(end)
        out.append(max(ends))
    return [GENERATION * end / max(out) for end in out]
