"""Twelve algorithms that coats can be put on, and pairs of right programs that a judge must keep apart.

    source_of(ALGORITHMS[0])    ->  "def f(nums):\\n    best, current = nums[0], 0\\n ..."

    for pair in honest_pairs():
        pair.name, pair.sides       # "majority: hash / vote", ((problem, code), (problem, code))

Expected results are those of a problem's first program. Two programs of one idea that are written differently (a memo
and a table) are no pair.
"""

from __future__ import annotations

import itertools
import json
import random
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import problem_of
from raypoly.data.puzzles import puzzle_solutions
from raypoly.data.puzzles.puzzle_language import Puzzle, all_puzzles

PRELUDE = """import heapq, itertools, math, re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from functools import lru_cache, reduce
"""
_PUZZLES = ("sum of squares of even numbers from 1 to n", "largest of triples of odd numbers below n")
Texts = Mapping[str, str]


def read_texts(file: str) -> dict[str, dict[str, str]]:
    """The texts of a file beside this one, by section ("=== name") and heading ("--- name").

    What stands above a section's first heading has the heading "". A "*" in a heading stands for the line itself: every
    line is a text of its own. Empty lines, and those above the first section, are left out.
    """
    sections: dict[str, dict[str, str]] = {}
    texts: dict[str, str] = {}
    heading = ""
    for line in Path(__file__).with_name(file).read_text("utf-8").splitlines():
        if line.startswith("=== "):
            texts, heading = sections.setdefault(line.removeprefix("=== "), {}), ""
        elif line.startswith("--- "):
            heading = line.removeprefix("--- ")
        elif line:
            name = heading.replace("*", line)
            texts[name] = f"{texts.get(name, '')}{line}\n"
    return sections


@dataclass(frozen=True)
class Algorithm:
    """One right algorithm for one problem."""

    name: str
    idea: str
    body: str
    """Leaves its result in `best` and reads its first parameter where `ITER` stands."""
    other_idea: str
    other: str
    """The body of the second algorithm."""
    parameters: str
    argument: Literal["ints", "rows", "text", "number"]
    """What the first parameter is."""
    cases: Sequence[Sequence[Any]]
    result: Literal["int", "bool", "list"] = "int"
    method: str = ""
    """Of `Solution`, where the program is a class."""
    any_order: bool = False
    """Whether the order of the first argument's items does not matter."""

    @property
    def first(self) -> str:
        return self.parameters.partition(",")[0]


def _algorithms() -> Iterator[Algorithm]:
    for name, texts in read_texts("base_programs.txt").items():
        (_, settings), (idea, body), (other_idea, other) = texts.items()
        yield Algorithm(name, idea, body, other_idea, other, **json.loads(settings))


ALGORITHMS = tuple(_algorithms())


def function(name: str, parameters: str, body: str) -> str:
    """Source of a function with this body."""
    return f"def {name}({parameters}):\n{textwrap.indent(body, '    ')}"


def source_of(algorithm: Algorithm, name: str = "f", second: bool = False) -> str:
    """The undressed program as a function, or the second algorithm's."""
    body = (algorithm.other if second else algorithm.body).replace("ITER", algorithm.first)
    return function(name, algorithm.parameters, f"{body}return best\n")


def make_problem(name: str, cases: Sequence[Sequence[Any]], solution: str, entry_point: str = "f") -> Problem:
    """A problem whose expected results are those of `solution`, a program with a function `f`."""
    space: dict[str, Any] = {}
    exec(PRELUDE + solution, space)
    tests = [{"args": list(args), "expected": space["f"](*args)} for args in cases]
    row = {"id": name, "entry_point": entry_point, "tests": {"kind": "calls", "cases": tests}, "prelude": PRELUDE}
    return problem_of(row)


def puzzle_problem(name: str, prompt: str, prefix: str, expected: Mapping[int, int]) -> Problem:
    """A puzzle with the result for each size as its tests."""
    suite = TestSuite("calls", json.dumps([{"args": [n], "expected": value} for n, value in expected.items()]))
    prelude = puzzle_solutions.PRELUDE
    return Problem(name, prompt, "f", suite, prelude, answer="completion", prefix=prefix, source="puzzles")


@dataclass(frozen=True)
class HonestPair:
    """Two right programs, each with its problem."""

    name: str
    sides: tuple[tuple[Problem, str], tuple[Problem, str]]


def _pairs(name: str, problem: Problem, codes: Texts, same: Sequence[Sequence[str]] = ()) -> Iterator[HonestPair]:
    """Any two of the programs, which are given by idea, but for the ideas that are the same."""
    for one, two in itertools.combinations(codes, 2):
        if {one, two} not in map(set, same):
            yield HonestPair(f"{name}: {one} / {two}", ((problem, codes[one]), (problem, codes[two])))


def _written_pairs(name: str, texts: Texts) -> Iterator[HonestPair]:
    """Pairs of one section of the file, those of an algorithm of that name among them."""
    given: dict[str, Any] = json.loads(texts.get("", "{}"))
    codes = {}
    for algorithm in (one for one in ALGORITHMS if one.name == name):
        given = {"parameters": algorithm.parameters, "cases": algorithm.cases} | given
        codes = {algorithm.idea: source_of(algorithm), algorithm.other_idea: source_of(algorithm, second=True)}
    codes |= {idea: function("f", given["parameters"], body) for idea, body in texts.items() if idea}
    problem = make_problem(f"honest {name}", given["cases"], next(iter(codes.values())))
    return _pairs(name, problem, codes, given.get("same", ()))


def _puzzle_pairs(puzzle: Puzzle) -> Iterator[HonestPair]:
    expected = {n: puzzle.answer(n) for n in (1, 3, 10, 24, 60)}
    problem = puzzle_problem(puzzle.words, puzzle.prompt, puzzle.signature, expected)
    codes = {
        name: puzzle.signature + puzzle_solutions.render_solution(puzzle, name, random.Random(name))
        for name in puzzle_solutions.STRATEGIES
    }
    return _pairs(puzzle.words, problem, codes)


def honest_pairs() -> list[HonestPair]:
    """The 200 pairs, those of puzzles last."""
    puzzles = {puzzle.words: puzzle for puzzle in all_puzzles()}
    written = (_written_pairs(name, texts) for name, texts in read_texts("honest_pairs.txt").items())
    return [*itertools.chain(*written, *(_puzzle_pairs(puzzles[words]) for words in _PUZZLES))]
