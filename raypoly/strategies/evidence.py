"""Ask confined children for a program's evidence and read their answers. Only this file runs outside the sandbox.

    with Sandbox(limits, StrategyEvidence()) as sandbox:
        sandbox.score(problem, code).evidence

The first child says what the source says; a program can't change that. The second says what the program did. A program
that can't be observed has the strategy that its source shows, if it is one alone; else a puzzle's or plain task's
evidence is unknown (`Evidence.unknown`), whatever it claims, and other programs have features alone.

Puzzles and plain tasks have strategies that differ by the constructs that grow with the input, so they get no features.
A program is run only if its tests are plain calls, on its smallest and its largest input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from raypoly.core.values import Evidence, Problem
from raypoly.verifier.sandbox.prepared_suite import Case

# an observed program takes the tests in the order of a scored run, up to so many; beyond, its smallest and largest
_MOST_TESTS = 32
_NOTHING_KNOWN = Evidence("", (), {}, "")
_ROOM = "raypoly.strategies"


class StrategyEvidence:
    """The evidence by which judges tell strategies apart: the sandbox's `EvidenceReader` in a run."""

    packages = (f"{_ROOM}.live_code", f"{_ROOM}.features", f"{_ROOM}.traced_runs")
    child_module = f"{_ROOM}.traced_runs.observer"
    seconds = 1.0

    def source_question(self, problem: Problem, code: str) -> tuple[str, str, bool]:
        """Arguments of `read_source`."""
        by_construct = problem.tests.kind == "calls" and (problem.answer == "completion" or problem.source == "tasks")
        return code, problem.entry_point, not by_construct

    def run_question(self, problem: Problem, code: str, cases: Sequence[Case], source: Any) -> tuple[Any, ...] | None:
        """Arguments of `observe`; None if there is nothing to run the program on, or for."""
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
        return code, problem.prelude, problem.entry_point, tests

    def read(self, source: Any, run: Any, ran: bool) -> Evidence:
        """The children's answers as `Evidence`; unknown if they have none."""
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
