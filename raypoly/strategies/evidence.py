"""Asks a confined child for a program's evidence and reads its answer. Only this file runs outside the sandbox.

    question = observe_question(problem, code, suite.cases)     # for a child in the role `observe`
    evidence = read_evidence(answer)                            # any answer

The question depends on the problem. A puzzle's strategies differ by the constructs that grow with the input, so it gets
no features. A program is run only if its tests are plain calls, on its smallest and its largest input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from raypoly.values import Evidence, Problem

EVIDENCE_SECONDS = 1.0
"""CPU seconds for the child."""
_NOTHING_KNOWN = Evidence("", (), {}, "")


class _Case(Protocol):
    @property
    def args(self) -> tuple[Any, ...]: ...

    @property
    def size(self) -> tuple[int, int]: ...


def observe_question(problem: Problem, code: str, cases: Sequence[_Case]) -> tuple[Any, ...]:
    """The child's role and the arguments of `observe`. `cases`: the tests that are calls, else empty."""
    small: list[Any] | None = None
    large: list[Any] | None = None
    if problem.tests.kind == "calls" and cases:
        ordered = sorted(cases, key=lambda case: case.size)
        small, large = list(ordered[0].args), list(ordered[-1].args)
    puzzle = problem.tests.kind == "calls" and problem.answer == "completion"
    return ("observe", code, problem.prelude, problem.entry_point, small, large, not puzzle)


def read_evidence(answer: Any) -> Evidence:
    """The child's answer as `Evidence`; empty evidence if the child failed or its answer is malformed."""
    if not isinstance(answer, dict):
        return _NOTHING_KNOWN
    try:
        return Evidence(
            canonical=str(answer["canonical"]),
            constructs=tuple(map(str, answer["constructs"])),
            growth={str(name): float(count) for name, count in answer["growth"].items()},
            strategy=str(answer["strategy"]),
            features=tuple(map(str, answer["features"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return _NOTHING_KNOWN
