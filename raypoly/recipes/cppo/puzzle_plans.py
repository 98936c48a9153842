"""Plans of puzzles, right or wrong by construction; the wrong ones keep the contract.

gold_tuple(puzzle, 4, rng)                # "A: fold over even numbers below n\\nB: for loop over even numbers ..."
wrong_tuple(puzzle, "reworded", rng)      # the same strategy twice, in two wordings
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase

from raypoly.data.puzzles.puzzle_language import Puzzle, all_puzzles
from raypoly.data.puzzles.puzzle_methods import method, numbers, wordings
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_solution

# Begins of methods that say nothing.
_TALK = ("look with care at", "think well about", "be clever about", "use the best way for", "do all of", "try hard on")
# Strategies whose last line is one expression with the whole solution, which the contract does not take for code.
_IN_ONE_LINE = ("comprehension", "recursion")


def gold_tuple(puzzle: Puzzle, methods: int, rng: random.Random) -> str:
    """K `methods` of different strategies, in any order. Raises `ValueError` above six."""
    return _labelled([method(puzzle, strategy, rng) for strategy in rng.sample(STRATEGIES, methods)])


def wrong_tuple(puzzle: Puzzle, kind: str, rng: random.Random, methods: int = 4) -> str:
    """K `methods`, 2 to 6, some of them wrong. `kind`:

    - `reworded`: a strategy twice, in two wordings.
    - `other`: one method, or all, of another puzzle; every second time of one that differs in one part alone.
    - `empty_talk`: one method, or all, that names no strategy.
    - `code`: a method with the code of its solution.
    """
    return _labelled(_KINDS[kind](puzzle, methods, rng))


def is_gold(puzzle: Puzzle, methods: Sequence[str | None]) -> bool:
    """Whether these are methods of the puzzle, of different strategies."""
    named = {strategy for strategy in STRATEGIES for said in methods if said in wordings(puzzle, strategy)}
    return len(named) == len(methods)


def _labelled(methods: Sequence[str]) -> str:
    return "\n".join(f"{label}: {said}" for label, said in zip(ascii_uppercase, methods, strict=False))


def _reworded(puzzle: Puzzle, methods: int, rng: random.Random) -> list[str]:
    again, *others = rng.sample(STRATEGIES, methods - 1)
    found = rng.sample(wordings(puzzle, again), 2) + [method(puzzle, strategy, rng) for strategy in others]
    rng.shuffle(found)
    return found


def _other(puzzle: Puzzle, methods: int, rng: random.Random) -> list[str]:
    others = _near(puzzle) if rng.random() < 0.5 else [it for it in _PUZZLES if numbers(it) != numbers(puzzle)]
    rival = rng.choice(others)
    changed = _changed(methods, rng)
    drawn = enumerate(rng.sample(STRATEGIES, methods))
    return [method(rival if place in changed else puzzle, strategy, rng) for place, strategy in drawn]


def _near(puzzle: Puzzle) -> list[Puzzle]:
    # The puzzles over other numbers that differ in one part alone: a gate that never sees them is soon fooled.
    own = (puzzle.source, puzzle.filter, puzzle.map)
    parts = [(it, (it.source, it.filter, it.map)) for it in _PUZZLES if it.aggregate == puzzle.aggregate]
    return [it for it, its in parts if sum(one is not two for one, two in zip(own, its, strict=True)) == 1]


def _empty_talk(puzzle: Puzzle, methods: int, rng: random.Random) -> list[str]:
    changed, talk = _changed(methods, rng), rng.sample(_TALK, methods)
    drawn = enumerate(rng.sample(STRATEGIES, methods))
    return [
        f"{talk[place]} {numbers(puzzle)}" if place in changed else method(puzzle, strategy, rng)
        for place, strategy in drawn
    ]


def _code(puzzle: Puzzle, methods: int, rng: random.Random) -> list[str]:
    coded = rng.choice(_IN_ONE_LINE)
    expression = render_solution(puzzle, coded, rng).strip().rpartition("return ")[2]
    found = [method(puzzle, it, rng) for it in rng.sample([it for it in STRATEGIES if it != coded], methods - 1)]
    found.insert(rng.randrange(methods), f"{method(puzzle, coded, rng)}, {expression}")
    return found


def _changed(methods: int, rng: random.Random) -> set[int]:
    # The places of the methods that are wrong: one or all.
    return {rng.randrange(methods)} if rng.random() < 0.5 else set(range(methods))


_KINDS: Mapping[str, Callable[[Puzzle, int, random.Random], list[str]]] = {
    "reworded": _reworded,
    "other": _other,
    "empty_talk": _empty_talk,
    "code": _code,
}
KINDS = tuple(_KINDS)
_PUZZLES = all_puzzles()
