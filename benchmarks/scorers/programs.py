"""The programs that the scorers are measured on, from a file or made from the puzzles, and what a way of scoring says.

A file's rows are JSON: `id`, `category`, `code`, `must` (`pass` or `fail`) and `problem` with `entry_point`,
`prelude` and `check` (Python that defines `check(candidate)`).
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from raypoly.core.config import ProblemsConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.data import build_problem_set
from raypoly.data.puzzles import puzzle_of
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_solution

SHARED = Path(__file__).parents[3] / "shared" / "sandbox" / "throughput.jsonl.gz"
TERMINATING = ("correct", "wrong", "exception", "syntax")
PUZZLES = 10
"""Of 30 programs each, in about the categories of the file."""


@dataclass(frozen=True)
class Item:
    """One program, the problem it is for, and whether it should pass."""

    id: str
    category: str
    code: str
    problem: Problem
    must_pass: bool

    @property
    def whole(self) -> str:
        return whole(self.problem, self.code)


def whole(problem: Problem, code: str) -> str:
    """Prelude, program and check in one text: what those run that isolate nothing from nothing."""
    return "\n".join((problem.prelude, code, problem.tests.source, f"check({problem.entry_point})"))


def as_check(puzzle: Problem) -> Problem:
    """The puzzle with its tests as a `check`, without its budgets, which only the sandbox counts."""
    cases = [(test["args"], test["expected"]) for test in json.loads(puzzle.tests.source)]
    asserts = [f"    assert candidate(*{args!r}) == {expected!r}\n" for args, expected in cases]
    return _problem(puzzle.entry_point, puzzle.prelude, "def check(candidate):\n" + "".join(asserts))


def load(path: Path | None) -> tuple[str, list[Item]]:
    """(where they come from, the programs): of `path`, else of the shared file, else made from the puzzles."""
    chosen = path or (SHARED if SHARED.exists() else None)
    if chosen is None:
        return "puzzles", list(_from_puzzles())
    content = gzip.decompress(chosen.read_bytes()) if chosen.suffix == ".gz" else chosen.read_bytes()
    rows = [json.loads(line) for line in content.splitlines()]
    return chosen.name, [
        Item(
            id=row["id"],
            category=row["category"],
            code=row["code"],
            problem=_problem(row["problem"]["entry_point"], row["problem"]["prelude"], row["problem"]["check"]),
            must_pass=row["must"] == "pass",
        )
        for row in rows
    ]


def with_solutions(items: list[Item]) -> list[Item]:
    """Each problem with its first plain right program as `solution`, which limits are calibrated on."""
    right: dict[str, str] = {}
    for item in items:
        if item.category == "correct":
            right.setdefault(item.problem.id, item.code)
    return [replace(item, problem=replace(item.problem, solution=right.get(item.problem.id, ""))) for item in items]


def sample(items: list[Item], limit: int | None) -> list[Item]:
    """At most `limit` programs, spread over the categories as the whole is; all where `limit` is None."""
    if limit is None or limit >= len(items):
        return items
    order = sorted(range(len(items)), key=lambda index: items[index].category)
    chosen = sorted(order[round(position * len(items) / limit)] for position in range(limit))
    return [items[index] for index in chosen]


def _problem(entry_point: str, prelude: str, check: str) -> Problem:
    tests = TestSuite("check", check)
    return Problem(f"{entry_point}:{tests.hash[:8]}", "", entry_point, tests, prelude=prelude)


def _from_puzzles() -> Iterator[Item]:
    problems = build_problem_set(ProblemsConfig(budgets=False)).splits["test"][:PUZZLES]
    for place, problem in enumerate(problems):
        asked, name = as_check(problem), problem.entry_point
        for number in range(30):
            strategy = STRATEGIES[number % len(STRATEGIES)]
            right = problem.prefix + render_solution(puzzle_of(problem), strategy, random.Random(number)) + "\n"
            category, code = "correct", f"{right}# variant {number}\n"
            if number >= 28:
                category, code = "loop", f"def {name}(n):\n    while True:\n        pass\n"
            elif number >= 25:
                category, code = "syntax", f"def {name}(n)\n    return n\n"
            elif number >= 22:
                category, code = "exception", f"def {name}(n):\n    return [][5]\n"
            elif number >= 11:
                category, code = "wrong", f"{code}\n\ndef {name}(n, right={name}):\n    return [right(n)]\n"
            yield Item(f"{place}-{number}-{category}", category, code, asked, category == "correct")


@dataclass(frozen=True)
class Outcome:
    """Of one program: whether it passed, and why for a person."""

    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class Scored:
    """Outcomes in the order of the programs, and what of the wall time went into calibration."""

    outcomes: list[Outcome]
    calibration_seconds: float = 0.0


Runner = Callable[[Sequence[Item]], Scored]
