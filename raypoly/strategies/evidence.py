"""Ask confined children for a program's evidence and read their answers. Only this file runs outside the sandbox.

    with Sandbox(limits, StrategyEvidence()) as sandbox:
        sandbox.score(problem, code).evidence

The first child runs the program, if its tests are calls, to see what changes neither answers nor work (`Reduction`).
The second reads the source without that, and runs nothing. Puzzles and plain tasks differ by the construct that did
most work of what remains, and get no features. What can't be decided is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from raypoly.core.values import Evidence, Problem
from raypoly.strategies.features.algorithm_features import DEGENERATE_KINDS
from raypoly.strategies.judge.structural import approach_of
from raypoly.strategies.traced_runs.mutated_inputs import inputs_of
from raypoly.verifier.sandbox.prepared_suite import Case, Cases

_NOTHING_KNOWN = Evidence("", (), {}, "")
_ROOM = "raypoly.strategies"


class StrategyEvidence:
    """The evidence by which judges tell strategies apart: the sandbox's `EvidenceReader` in a run."""

    packages = (f"{_ROOM}.live_code", f"{_ROOM}.features", f"{_ROOM}.traced_runs")
    child_module = f"{_ROOM}.traced_runs.observer"

    def run_question(self, problem: Problem, code: str, suite: Cases | None, passed: bool) -> tuple[Any, ...] | None:
        """Arguments of `observe`; None if there is nothing to run the program on."""
        if problem.tests.kind not in ("calls", "check") or suite is None:
            return None
        if "inputs" not in suite.kept:
            tests, keywords = _alike_called(suite.cases)
            suite.kept["inputs"] = inputs_of(tests), keywords
        return code, problem.entry_point, suite.counted, *suite.kept["inputs"], passed, _by_construct(problem)

    def source_question(self, problem: Problem, code: str, run: Any) -> tuple[str, str, bool, list[Any]]:
        """Arguments of `read_source`: of what remains of the program, where its run found that something may go."""
        match run:
            case ("reduced", {"choices": list(choices), "known": True}):
                return code, problem.entry_point, not _by_construct(problem), choices
        return code, problem.entry_point, not _by_construct(problem), []

    def read(self, source: Any, run: Any, ran: bool) -> Evidence:
        """The children's answers as `Evidence`; unknown if they have none."""
        match source:
            case {"canonical": str(text), "constructs": list(live), "strategy": str(shown), "features": list(known)}:
                evidence = Evidence(text, tuple(map(str, live)), {}, "", tuple(map(str, known)))
            case _:
                return _NOTHING_KNOWN
        if not DEGENERATE_KINDS.isdisjoint(evidence.features):
            return evidence
        match run:
            case ("reduced", {"growth": dict(growth), "known": bool(decided), "strategy": str(strategy)}):
                evidence = replace(evidence, growth={str(name): float(count) for name, count in growth.items()})
                if evidence.features and decided:
                    return replace(evidence, strategy=approach_of(frozenset(evidence.features)))
                if strategy and decided and not evidence.unknown:
                    return replace(evidence, strategy=strategy)
        if ran and (evidence.features or not shown):
            return replace(evidence, constructs=(), features=())
        return replace(evidence, strategy=shown if ran else "")


def _by_construct(problem: Problem) -> bool:
    return problem.tests.kind == "calls" and (problem.answer == "completion" or problem.source == "tasks")


def _alike_called(cases: Sequence[Case]) -> tuple[list[list[Any]], list[str]]:
    """All arguments of the cases that are called as the first one is, and the names of the last of them."""
    keywords = list(cases[0].kwargs)
    alike = (case for case in cases if list(case.kwargs) == keywords)
    return [[*case.args, *case.kwargs.values()] for case in alike], keywords
