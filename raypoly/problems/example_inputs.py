"""The example inputs of a problem: the inputs of its public tests, without what is expected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from raypoly.problems.public_tests import set_apart
from raypoly.values import Problem

_MOST = 3
_NOBODY_KNOWS = "no program gives this: raypoly asks what is given"
"""In the place of what is expected, so that every program fails, and the verdict says what it gave."""


def example_inputs(problem: Problem) -> Sequence[Problem]:
    """The problem once for each of its first public tests, or else of its first tests, with that input alone and
    nothing that is known to be right. Empty where tests state no inputs, as a `check` does."""
    suite = problem.public_tests or set_apart(problem, _MOST).public_tests or problem.tests
    if suite.kind not in ("calls", "stdin", "operations"):
        return ()
    key = "output" if suite.kind == "stdin" else "expected"
    found = []
    for place, case in enumerate(json.loads(suite.source)[:_MOST]):
        expected = [*case[key][:-1], _NOBODY_KNOWS] if suite.kind == "operations" else _NOBODY_KNOWS
        tests = replace(suite, source=json.dumps([{**case, key: expected}]), checker="")
        name = f"{problem.id} (example {place + 1})"
        found.append(replace(problem, id=name, tests=tests, public_tests=None, solution="", reference_seconds=None))
    return found
