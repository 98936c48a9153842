"""Plan what is killed in which run, and when. A seed decides it before anything starts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.support.driver_process import STEPS

ACTORS = ("generator", "scorer", "judge", "learner")
KINDS = ("driver", *ACTORS, "node", "partition")
CHANGES = ("lose", "gain")
"""A node is lost for good; another node joins."""
COMMITS_A_STEP = 8
"""About as many journal objects and rollout files as a step writes."""
_SHORT, _LONG = (0.5, 3.0), (14.0, 18.0)
"""Seconds without a network: so few that Ray waits, and so many that Ray takes the node for dead."""


@dataclass(frozen=True)
class Kill:
    """One kill of a plan."""

    kind: str
    """One of `KINDS` or of `CHANGES`."""
    after: int
    """Kill when the run has written this many journal objects and rollout files ..."""
    delay: float
    """... and this many seconds later."""
    actor: str
    """For a node that is lost or a partition: the actor that is on the node."""
    seconds: float
    """For a partition: how long it lasts."""


def kill_plans(seed: int, kills_a_run: int, kinds: Sequence[str] = KINDS) -> Iterator[list[Kill]]:
    """Yield the plan of each run, without end. Kinds are dealt like cards, so that none is rare."""
    rng = random.Random(f"chaos {seed}")
    deck: list[str] = []
    while True:
        while len(deck) < kills_a_run:
            deck += rng.sample(kinds, len(kinds))
        dealt, deck = deck[:kills_a_run], deck[kills_a_run:]
        yield sorted((_kill(kind, rng) for kind in dealt), key=lambda kill: kill.after)


def change_plans(seed: int, pairs_a_run: int) -> Iterator[list[Kill]]:
    """Yield the plan of each run, without end: during steps, nodes are lost and join in turn, so that there are never
    more or fewer than one beyond those at first."""
    rng = random.Random(f"churn {seed}")
    while True:
        kinds = [kind for _ in range(pairs_a_run) for kind in rng.sample(CHANGES, 2)]
        times = sorted(rng.randrange(1, COMMITS_A_STEP * STEPS) for _ in kinds)
        yield [replace(_kill(kind, rng), after=after) for kind, after in zip(kinds, times, strict=True)]


def _kill(kind: str, rng: random.Random) -> Kill:
    return Kill(
        kind=kind,
        after=rng.randrange(0, COMMITS_A_STEP * STEPS),
        delay=rng.random() * 0.3,
        actor=rng.choice(ACTORS),
        seconds=rng.uniform(*(_LONG if rng.random() < 0.25 else _SHORT)),
    )
