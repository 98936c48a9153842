"""Asks a confined child for a program's evidence and reads its answer. Only this file runs outside the sandbox.

    source = reader.evidence(*source_question(problem, code))          # from a child that runs no program
    question = run_question(nonce, problem, code, suite.cases, source) # for a child in the role `observe`, or None
    evidence = read_evidence(source, run)                              # with that child's answer, or None

The first child says what the source says, and a program can't change it. The second says what the program did. A
program that can't be observed has the strategy that its source shows, if it is one alone; else a puzzle's or plain
task's evidence is unknown (`Evidence.unknown`), whatever it claims, and other programs have features alone.

The questions depend on the problem. Puzzles and plain tasks, whose programs are a few lines, have strategies that
differ by the constructs that grow with the input, so they get no features. A program is run only if its tests are plain
calls, on its smallest and its largest input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from raypoly.core.values import Evidence, Problem

OBSERVED_SECONDS = 1.0
"""CPU seconds for the child that runs the program."""
_MOST_TESTS = 32
"""An observed program takes the tests in the order of a scored run, up to so many; beyond, its smallest and largest."""
_NOTHING_KNOWN = Evidence("", (), {}, "")


class _Case(Protocol):
    @property
    def args(self) -> tuple[Any, ...]: ...

    @property
    def budget(self) -> Mapping[str, int] | None: ...

    @property
    def size(self) -> tuple[int, int]: ...


def source_question(problem: Problem, code: str) -> tuple[str, str, bool]:
    """The arguments of `read_source`."""
    by_construct = problem.tests.kind == "calls" and (problem.answer == "completion" or problem.source == "tasks")
    return code, problem.entry_point, not by_construct


def run_question(
    nonce: bytes, problem: Problem, code: str, cases: Sequence[_Case], source: Any
) -> tuple[Any, ...] | None:
    """The child's role and the arguments of `observer.serve`; None if there is nothing to run the program on, or for.

    `source`: what the reader found.
    """
    match source:
        case {"places": list(places)} if problem.tests.kind == "calls" and cases:
            places = [tuple(place) for place in places]
        case _:
            return None
    ordered = sorted(range(len(cases)), key=lambda place: cases[place].size)
    small, large = ordered[0], ordered[-1]
    shown = list(range(max(small, large) + 1))
    if len(shown) > _MOST_TESTS:
        small, large, shown = 0, 1, [small, large]
    budgeted = any(case.budget is not None for case in cases)
    tests = ([list(cases[place].args) for place in shown], small, large, budgeted, places)
    return "observe", nonce, code, problem.prelude, problem.entry_point, tests


def read_evidence(source: Any, run: Any, ran: bool) -> Evidence:
    """The children's answers as `Evidence`; unknown if they have none. `ran`: the program was to be run."""
    match source:
        case {"canonical": str(text), "constructs": list(live), "strategy": str(shown), "features": list(known)}:
            evidence = Evidence(text, tuple(map(str, live)), {}, "", tuple(map(str, known)))
        case _:
            return _NOTHING_KNOWN
    match run:
        case ("run", {"growth": dict(growth), "strategy": str(strategy)}):
            counts = {str(name): float(count) for name, count in growth.items()}
            return replace(evidence, growth=counts, strategy=strategy)
        case _ if ran and not shown and not evidence.features:  # features are read from the source alone
            return replace(evidence, constructs=())
    return replace(evidence, strategy=shown if ran else "")
