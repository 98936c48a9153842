"""The example inputs of a problem: the inputs of its public tests, without what is expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raypoly.core.values import Problem
from raypoly.data.formats.long_integers import dumps, loads
from raypoly.data.public_tests import set_apart

_MOST = 3
_NOBODY_KNOWS = "no program gives this: raypoly asks what is given"
"""In the place of what is expected, so that every program fails, and the verdict says what it gave."""


def example_inputs(problem: Problem) -> Sequence[Problem]:
    """The problem once for each of its first public tests, or else of its first tests, with that input alone and
    nothing that is known to be right. Empty where tests state no inputs, as a `check` does, or are broken."""
    suite = problem.public_tests or set_apart(problem, _MOST).public_tests or problem.tests
    if suite.kind not in ("calls", "stdin", "operations"):
        return ()
    try:
        cases = loads(suite.source)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(cases, list) or not all(isinstance(case, Mapping) for case in cases):
        return ()
    key = "output" if suite.kind == "stdin" else "expected"
    found = []
    for place, case in enumerate(cases[:_MOST]):
        tests = replace(suite, source=dumps([{**case, key: _NOBODY_KNOWS}]), checker="")
        name = f"{problem.id} (example {place + 1})"
        found.append(replace(problem, id=name, tests=tests, public_tests=None, solution="", reference_seconds=None))
    return found
