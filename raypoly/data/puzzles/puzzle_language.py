"""The micro language of puzzles: source x filter x map x aggregate, each spoken in words and in Python.

    Puzzle(SOURCES[0], FILTERS[1], MAPS[1], AGGREGATES[0]).prompt
    "# sum of squares of even numbers from 1 to n\\ndef f(n):\\n"

An expression template has `X` where the element stands. All mapped values are >= 0, so 0 is every aggregate's start.

    method(puzzle, "reduce", rng)        # "fold over even numbers below n"

A method in words is a strategy (`raypoly.analysis.evaluation.planned_strategy` reads it back) and what it works on, in
its puzzle's own words, so that one of another puzzle can be told apart.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class PuzzleSource:
    name: str
    words: str
    parameters: str
    """The signature's parameters: `n`, or `a, b`."""
    elements: Callable[..., Sequence[int]]


@dataclass(frozen=True)
class Filter:
    """Which elements count; the empty template keeps all."""

    words: str
    template: str
    keep: Callable[[int], bool]


@dataclass(frozen=True)
class Map:
    words: str
    template: str
    apply: Callable[[int], int]


@dataclass(frozen=True)
class Aggregate:
    """How the mapped elements become one number: folded from `start`, then (modulo) reduced."""

    name: str
    words: str
    start: int
    result: Callable[[Sequence[int]], int]


_SOURCES = (
    PuzzleSource("up_to", "from 1 to n", "n", lambda n: range(1, n + 1)),
    PuzzleSource("below", "below n", "n", lambda n: range(n)),
    PuzzleSource("between", "from a to b", "a, b", lambda a, b: range(a, b + 1)),
    PuzzleSource("digits", "in digits of s", "s", lambda s: [int(c) for c in s]),
)

ALL = Filter("", "", lambda x: True)
FILTERS = (
    ALL,
    Filter("even ", "X % 2 == 0", lambda x: x % 2 == 0),
    Filter("odd ", "X % 2 == 1", lambda x: x % 2 == 1),
    Filter("multiple of 3 ", "X % 3 == 0", lambda x: x % 3 == 0),
    Filter("multiple of 4 ", "X % 4 == 0", lambda x: x % 4 == 0),
    Filter("multiple of 5 ", "X % 5 == 0", lambda x: x % 5 == 0),
    Filter("1 mod 3 ", "X % 3 == 1", lambda x: x % 3 == 1),
    Filter("1 mod 4 ", "X % 4 == 1", lambda x: x % 4 == 1),
)

SAME = Map("", "X", lambda x: x)
_ONE = Map("", "1", lambda x: 1)
MAPS = (
    SAME,
    Map("squares of ", "X ** 2", lambda x: x**2),
    Map("cubes of ", "X ** 3", lambda x: x**3),
    Map("doubles of ", "2 * X", lambda x: 2 * x),
    Map("triples of ", "3 * X", lambda x: 3 * x),
    Map("successors of ", "X + 1", lambda x: x + 1),
    Map("halves of ", "X // 2", lambda x: x // 2),
)

COUNT = Aggregate("count", "count of ", 0, lambda values: sum(values))
AGGREGATES = (
    Aggregate("sum", "sum of ", 0, lambda values: sum(values)),
    Aggregate("more", "one plus sum of ", 1, lambda values: 1 + sum(values)),
    Aggregate("mod", "sum mod 7 of ", 0, lambda values: sum(values) % 7),
    Aggregate("max", "largest of ", 0, lambda values: max(values, default=0)),
)


@dataclass(frozen=True)
class Puzzle:
    source: PuzzleSource
    filter: Filter
    map: Map
    aggregate: Aggregate

    @cached_property
    def words(self) -> str:
        return f"{self.aggregate.words}{self.map.words}{self.filter.words}numbers {self.source.words}"

    @property
    def signature(self) -> str:
        """The line that a response continues."""
        return f"def f({self.source.parameters}):\n"

    @property
    def prompt(self) -> str:
        return f"# {self.words}\n{self.signature}"

    def kept(self, *args: int | str) -> int:
        """Number of elements that pass the filter."""
        return sum(1 for x in self.source.elements(*args) if self.filter.keep(x))

    def answer(self, *args: int | str) -> int:
        """The right result, computed from the puzzle's parts and from no solution."""
        elements = self.source.elements(*args)
        return self.aggregate.result([self.map.apply(x) for x in elements if self.filter.keep(x)])


def all_puzzles() -> list[Puzzle]:
    """Every puzzle of the language, in a fixed order: 4 x 8 x 7 x 4, and 4 x 7 that count what a filter keeps."""
    folded = [Puzzle(*parts) for parts in itertools.product(_SOURCES, FILTERS, MAPS, AGGREGATES)]
    counted = [Puzzle(source, kept, _ONE, COUNT) for source in _SOURCES for kept in FILTERS if kept is not ALL]
    return folded + counted


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
