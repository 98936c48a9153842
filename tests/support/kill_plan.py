"""What is killed in which run, and when: decided by a seed before anything starts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.support.driver_process import STEPS

ACTORS = ("generator", "scorer", "judge", "learner")
KINDS = ("driver", *ACTORS, "node", "partition")
COMMITS_A_STEP = 8
"""About as many journal objects and rollout files as a step writes."""
_SHORT, _LONG = (0.5, 3.0), (14.0, 18.0)
"""Seconds without a network that are borne, and after which Ray takes the node for dead."""


@dataclass(frozen=True)
class Kill:
    """One blow."""

    kind: str
    """One of `KINDS`."""
    after: int
    """It falls when the run has written this many journal objects and rollout files ..."""
    delay: float
    """... and so many seconds have gone."""
    actor: str
    """Of a node or a partition: whose node it is."""
    seconds: float
    """Of a partition: how long it lasts."""


def kill_plans(seed: int, kills_a_run: int, kinds: Sequence[str] = KINDS) -> Iterator[list[Kill]]:
    """The plan of each run, without an end; kinds are dealt like cards, so that none is rare."""
    rng = random.Random(f"chaos {seed}")
    deck: list[str] = []
    while True:
        while len(deck) < kills_a_run:
            deck += rng.sample(kinds, len(kinds))
        dealt, deck = deck[:kills_a_run], deck[kills_a_run:]
        yield sorted((_kill(kind, rng) for kind in dealt), key=lambda kill: kill.after)


def _kill(kind: str, rng: random.Random) -> Kill:
    return Kill(
        kind=kind,
        after=rng.randrange(0, COMMITS_A_STEP * STEPS),
        delay=rng.random() * 0.3,
        actor=rng.choice(ACTORS),
        seconds=rng.uniform(*(_LONG if rng.random() < 0.25 else _SHORT)),
    )
