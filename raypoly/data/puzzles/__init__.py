"""Puzzles: small Python functions with executable tests and hidden resource budgets, generated from a seed.

    load_puzzles(ProblemsConfig(seed=0)).splits["train"][0].prompt

The budgets are a judge's natural limits, drawn so that no strategy fits every puzzle. A time limit counts executed
steps, a memory limit live elements, a recursion limit nested frames, all counted beside the candidate and never by a
clock. What one element of the big test costs:

    comprehension   0 steps, 1 element      reduce  1 step, one frame       map/filter  1 to 2 steps, one frame
    for             2 to 4 steps            while   3 to 5 steps            recursion   3 to 4 steps, a frame each

So `time` leaves comprehension, map/filter and reduce, `memory` all but comprehension, `flat` (no nested call) for,
while and comprehension, and `stack` all but recursion. The draw is independent of what the prompt says.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem, Split, TestSuite
from raypoly.data.problem_set import ProblemSet, split_by_seed
from raypoly.data.puzzles.puzzle_language import ALL, SAME, Puzzle, all_puzzles
from raypoly.data.puzzles.puzzle_solutions import PRELUDE

Budget = dict[str, int]

STEP_LIMIT: Budget = {"steps": 10_000}
"""On every test that has no step budget of its own, in the control experiment too: some ten times what the dearest
plain solution needs. It ends endless loops at once and always at the same step, where a clock would depend on load."""


@dataclass(frozen=True)
class Profile:
    """One kind of hidden budget."""

    name: str
    share: float
    """Of the problems of each split, unless `problems.budgets` is `drawn`."""
    survivors: frozenset[str]
    """The strategies whose plain solutions fit."""


_EVERY = frozenset({"for", "while", "recursion", "comprehension", "higher_order", "reduce"})

PROFILES = (
    Profile("time", 0.30, frozenset({"comprehension", "higher_order", "reduce"})),
    Profile("memory", 0.30, _EVERY - {"comprehension"}),
    Profile("flat", 0.30, frozenset({"for", "while", "comprehension"})),
    Profile("stack", 0.10, _EVERY - {"recursion"}),
)
SHARES = tuple(profile.share for profile in PROFILES)
FREE = Profile("free", 1.0, _EVERY)
"""Control experiment: no budget."""


def draw_profiles(count: int, rng: random.Random, shares: Sequence[float] = SHARES) -> list[Profile]:
    """In random order, each as often as its share says (to within one)."""
    edges = [round(count * sum(shares[: i + 1])) for i in range(len(PROFILES))]
    drawn = [profile for i, profile in enumerate(PROFILES) for _ in range(edges[i] - (edges[i - 1] if i else 0))]
    rng.shuffle(drawn)
    return drawn


def drawn_shares(seed: int) -> list[float]:
    """Of `PROFILES`, uniform among all that add up to 1."""
    rng = random.Random(derive(seed, "puzzle budget shares"))
    edges = [0.0, *sorted(rng.random() for _ in PROFILES[1:]), 1.0]
    return [high - low for low, high in pairwise(edges)]


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


_SMALL: Mapping[str, Sequence[tuple[int | str, ...]]] = {
    "n": [(0,), (1,), (2,), (7,), (13,)],
    "a, b": [(3, 2), (1, 1), (2, 9), (5, 14)],
    "s": [("",), ("7",), ("0",), ("3141592",), ("86420975",)],
}


def _big(puzzle: Puzzle, rng: random.Random) -> tuple[int | str, ...]:
    """Arguments of the big test: 96 to 160 elements."""
    size = rng.randrange(96, 161)
    if puzzle.source.name == "digits":
        return ("".join(str(rng.randrange(10)) for _ in range(size)),)
    if puzzle.source.name == "between":
        first = rng.randrange(1, 20)
        return (first, first + size - 1)
    return (size,)


def _suite(puzzle: Puzzle, profile: Profile, rng: random.Random) -> TestSuite:
    """Small tests, then the big one under the profile's budget."""
    big = _big(puzzle, rng)
    calls = [(args, STEP_LIMIT) for args in _SMALL[puzzle.source.parameters]]
    calls.append((big, call_budget(profile, puzzle, big)))
    rows = [{"args": list(args), "expected": puzzle.answer(*args), "budget": limits} for args, limits in calls]
    return TestSuite("calls", json.dumps(rows))


def _problem(puzzle: Puzzle, profile: Profile, seed: int) -> Problem:
    name = hashlib.sha256(puzzle.words.encode()).hexdigest()[:10]
    return Problem(
        id=f"puzzle-{name}",
        prompt=puzzle.prompt,
        entry_point="f",
        tests=_suite(puzzle, profile, random.Random(derive(seed, "puzzle tests", puzzle.words))),
        prelude=PRELUDE,
        answer="completion",
        prefix=puzzle.signature,
        source="puzzles",
        metadata={"words": puzzle.words, "family": puzzle.aggregate.words.removesuffix(" of "), "budget": profile.name},
    )


def load_puzzles(config: ProblemsConfig) -> ProblemSet:
    """All 924 puzzles, split and given budgets by `config.seed`; each split has every profile in its share.

    Raises `UsageError` where validation and test leave nothing to train on.
    """
    parts = split_by_seed(all_puzzles(), config, "puzzle split", "puzzles")
    splits: dict[Split, Sequence[Problem]] = {}
    shares = drawn_shares(config.seed) if config.budgets == "drawn" else SHARES
    for name, members in parts.items():
        rng = random.Random(derive(config.seed, "puzzle budgets", name))
        profiles = draw_profiles(len(members), rng, shares) if config.budgets else [FREE] * len(members)
        splits[name] = [_problem(p, profile, config.seed) for p, profile in zip(members, profiles, strict=True)]
    rows = [
        [name, p.id, p.prompt, p.entry_point, p.tests.hash, p.prelude, p.answer, p.prefix]
        for name in sorted(splits)
        for p in splits[name]
    ]
    return ProblemSet(splits, hashlib.sha256(json.dumps(rows).encode()).hexdigest())


def puzzle_of(problem: Problem) -> Puzzle:
    """Raises `UsageError` where the problem was not made here."""
    found = find_puzzle(problem)
    if found is None:
        raise UsageError(
            f"No model.path is set, and the tiny model that is trained then reads puzzles alone: problem "
            f"{problem.id!r} of {problem.source or 'a file'} is none. Set model.path, such as smollm2-q4 "
            "(docs/models.md), or problems.source=puzzles."
        )
    return found


def find_puzzle(problem: Problem) -> Puzzle | None:
    """None where the problem was not made here."""
    return puzzle_by_words(problem.metadata.get("words", "")) if problem.source == "puzzles" else None


def puzzle_by_words(words: str) -> Puzzle | None:
    return _BY_WORDS.get(words)


_BY_WORDS = {puzzle.words: puzzle for puzzle in all_puzzles()}
