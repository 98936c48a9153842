"""Hidden resource budgets: a judge's natural limits, drawn so that no strategy fits every puzzle.

A time limit counts executed steps, a memory limit live elements, a recursion limit nested frames, all counted beside
the candidate and never by a clock. What one element of the big test costs:

    comprehension   0 steps, 1 element      reduce  1 step, one frame       map/filter  1 to 2 steps, one frame
    for             2 to 4 steps            while   3 to 5 steps            recursion   3 to 4 steps, a frame each

So `time` leaves comprehension, map/filter and reduce, `memory` all but comprehension, `flat` (no nested call) for,
while and comprehension, and `stack` all but recursion. The draw is independent of what the prompt says.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from raypoly.data.puzzles.puzzle_language import ALL, SAME, Puzzle

Budget = dict[str, int]

STEP_LIMIT: Budget = {"steps": 10_000}
"""On every test that has no step budget of its own, in the control experiment too: some ten times what the dearest
plain solution needs. It ends endless loops at once and always at the same step, where a clock would depend on load."""


@dataclass(frozen=True)
class Profile:
    """One kind of hidden budget."""

    name: str
    share: float
    """Of the problems of each split."""
    survivors: frozenset[str]
    """The strategies whose plain solutions fit."""


_EVERY = frozenset({"for", "while", "recursion", "comprehension", "higher_order", "reduce"})

PROFILES = (
    Profile("time", 0.30, frozenset({"comprehension", "higher_order", "reduce"})),
    Profile("memory", 0.30, _EVERY - {"comprehension"}),
    Profile("flat", 0.30, frozenset({"for", "while", "comprehension"})),
    Profile("stack", 0.10, _EVERY - {"recursion"}),
)
FREE = Profile("free", 1.0, _EVERY)
"""Control experiment: no budget."""


def draw_profiles(count: int, rng: random.Random) -> list[Profile]:
    """In random order, each as often as its share says (to within one)."""
    edges = [round(count * sum(p.share for p in PROFILES[: i + 1])) for i in range(len(PROFILES))]
    drawn = [profile for i, profile in enumerate(PROFILES) for _ in range(edges[i] - (edges[i - 1] if i else 0))]
    rng.shuffle(drawn)
    return drawn


def _step_budget(puzzle: Puzzle, elements: int, kept: int) -> int:
    """Halfway, in ratio, between the dearest lambda solution and the cheapest loop, one without an if statement."""
    lambdas = elements if puzzle.filter is ALL or puzzle.map is SAME else elements + kept
    return math.isqrt(lambdas * 2 * elements)


def call_budget(profile: Profile, puzzle: Puzzle, args: tuple[int | str, ...]) -> Budget:
    """The limits on the call `f(*args)` of the big test."""
    elements, kept = len(puzzle.source.elements(*args)), puzzle.kept(*args)
    limits: Mapping[str, Budget] = {
        "time": {"steps": _step_budget(puzzle, elements, kept)},
        "memory": {"elements": max(4, kept // 4)},
        "flat": {"depth": 1},
        "stack": {"depth": 16},
        "free": {},
    }
    return STEP_LIMIT | limits[profile.name]
