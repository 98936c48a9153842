"""Methods of puzzles in words: a strategy (`raypoly.strategies.planned_strategy` reads it back), and what it works on.

    method(puzzle, "reduce", rng)        # "fold over even numbers below n"

A method says its puzzle's own words, so that one of another puzzle can be told apart.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from raypoly.data.puzzles.puzzle_language import Puzzle

_WORDINGS: Mapping[str, Sequence[str]] = {
    "for": ("for loop over", "loop once over", "iterate over"),
    "while": ("while loop over", "go on while there are", "use while to take"),
    "recursion": ("recursion over", "let f recurse over", "let f call itself on"),
    "comprehension": ("comprehension over", "use a comprehension of", "comprehension that lists"),
    "higher_order": ("map and filter over", "use map and filter on", "higher-order functions on"),
    "reduce": ("reduce over", "fold over", "use reduce to fold"),
}


def wordings(puzzle: Puzzle, strategy: str) -> tuple[str, ...]:
    """The three methods of this strategy."""
    return tuple(f"{words} {numbers(puzzle)}" for words in _WORDINGS[strategy])


def method(puzzle: Puzzle, strategy: str, rng: random.Random) -> str:
    """One of `wordings`."""
    return rng.choice(wordings(puzzle, strategy))


def numbers(puzzle: Puzzle) -> str:
    """The numbers that the aggregate is taken of."""
    return f"{puzzle.map.words}{puzzle.filter.words}numbers {puzzle.source.words}"
