"""Solutions that are wrong on purpose, for the warm start: a policy that errs has something to learn.

render_mistake(puzzle, "for", rng)  # a body that solves a neighbouring puzzle, misses a range's end, or is broken text
"""

from __future__ import annotations

import dataclasses
import random

from raypoly.data.puzzles.puzzle_language import AGGREGATES, ALL, COUNT, FILTERS, MAPS, Puzzle
from raypoly.data.puzzles.puzzle_solutions import render_solution

# Small changes of text that usually change the result.
_SLIPS = (
    ("n + 1)", "n)"),
    ("b + 1)", "b)"),
    ("range(n)", "range(1, n)"),
    ("<= n", "< n"),
    ("<= b", "< b"),
    ("< n", "<= n"),
    ("n == 0", "n == 1"),
    ("a > b", "a == b"),
    ("not s", "len(s) == 1"),
    ("% 2 == 0", "% 2"),
    ("% 3 == 0", "% 3"),
    (" += 1\n", " += 2\n"),
    ("s[1:]", "s[2:]"),
    (" = 0\n", " = 1\n"),
    (", 0)", ")"),
    ("+ (", "* ("),
)


def _neighbour(puzzle: Puzzle, rng: random.Random) -> Puzzle:
    """Another puzzle that differs in one part, so that its right solution is wrong here."""
    parts = ["filter", "map", "aggregate"] if puzzle.aggregate is not COUNT else ["filter"]
    part = rng.choice(parts)
    if part == "filter":
        others = [f for f in FILTERS if f is not puzzle.filter and (puzzle.aggregate is not COUNT or f is not ALL)]
        return dataclasses.replace(puzzle, filter=rng.choice(others))
    if part == "map":
        return dataclasses.replace(puzzle, map=rng.choice([m for m in MAPS if m is not puzzle.map]))
    return dataclasses.replace(puzzle, aggregate=rng.choice([a for a in AGGREGATES if a is not puzzle.aggregate]))


def _slip(body: str, rng: random.Random) -> str:
    found = [(old, new) for old, new in _SLIPS if old in body]
    return body.replace(*rng.choice(found), 1) if found else body


def _break(body: str, rng: random.Random) -> str:
    """One character or one line lost: most of these do not parse."""
    if rng.random() < 0.5:
        lines = body.splitlines(keepends=True)
        del lines[rng.randrange(len(lines))]
        return "".join(lines) or " return\n"
    at = rng.randrange(1, len(body) - 1)
    return body[:at] + body[at + 1 :]


def render_mistake(puzzle: Puzzle, strategy: str, rng: random.Random) -> str:
    """A body by `strategy` that is meant to be wrong: half solve a neighbour, the rest slip or are broken text."""
    kind = rng.random()
    if kind < 0.5:
        return render_solution(_neighbour(puzzle, rng), strategy, rng)
    body = render_solution(puzzle, strategy, rng)
    slipped = _slip(body, rng) if kind < 0.75 else body
    return _break(body, rng) if slipped == body else slipped
