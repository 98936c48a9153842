"""A problem's public tests: those that its policy may see, apart from the hidden ones, which decide the reward.

problem = set_apart(problem, 3)
problem.public_tests                    # its own, else its first three; None where nothing can be set apart
problem.tests                           # none of the public ones
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.long_integers import dumps, loads, long_integers
from raypoly.data.formats.python_source import parse_python


@dataclass(frozen=True)
class _Tests:
    keys: tuple[str, ...]
    """Equal for equal tests."""
    keep: Callable[[Iterable[int]], TestSuite]
    """The suite of the tests at these places alone."""

    def without(self, shown: Collection[str]) -> list[int]:
        return [place for place, key in enumerate(self.keys) if key not in shown]


def set_apart(problem: Problem, n: int) -> Problem:
    """The problem with its public tests apart from its hidden ones, of which at least one stays.

    Public tests are taken out of `tests`, copies included: a test that was shown decides nothing. A problem without
    any gets its first `n`. Unchanged where nothing can be told apart. Of a `check(candidate)` the tests are the
    assertions of its body; where another statement asserts something or uses the candidate, nothing is set apart.

    """
    tests, public = _tests_of(problem.tests), problem.public_tests
    if tests is None:
        return problem
    if public is not None:
        shown = _tests_of(public) if public.kind == problem.tests.kind else None
        hidden = tests.without(set(shown.keys)) if shown else []
        return replace(problem, tests=tests.keep(hidden)) if 0 < len(hidden) < len(tests.keys) else problem
    for count in range(min(n, len(tests.keys) - 1), 0, -1):
        if hidden := tests.without(set(tests.keys[:count])):
            return replace(problem, tests=tests.keep(hidden), public_tests=tests.keep(range(count)))
    return problem


def public_digest(problem: Problem) -> list[str]:
    """The hash of the public tests, as a part of the hash of the problem's content.

    Empty where they are the first of `tests`, as the readers of public data sets have them: the content's hash does
    not say how many of the first tests are public.
    """
    public, tests = problem.public_tests, problem.tests
    if public is None:
        return []
    alike = replace(public, source="") == replace(tests, source="")
    begins = tests.source == public.source or tests.source.startswith(f"{public.source[:-1]}, ")
    return [] if alike and begins else [public.hash]


def _tests_of(suite: TestSuite) -> _Tests | None:
    """None where they can't be told apart."""
    try:
        if suite.kind == "check":
            return _assertions_of(suite)
        return _cases_of(suite) if suite.kind in ("calls", "stdin", "operations") else None
    except (ValueError, RecursionError):  # broken tests: who runs them says so
        return None


def _cases_of(suite: TestSuite) -> _Tests | None:
    cases = loads(suite.source)
    if not isinstance(cases, list):
        return None
    texts = [dumps(case) for case in cases]
    keys = (dumps(sorted(case.items())) if isinstance(case, Mapping) else dumps(case) for case in cases)

    def keep(places: Iterable[int]) -> TestSuite:
        return replace(suite, source=f"[{', '.join(texts[place] for place in places)}]")

    return _Tests(tuple(keys), keep)


def _assertions_of(suite: TestSuite) -> _Tests | None:
    with long_integers():
        module = parse_python(suite.source, "tests")
        found = [part for part in module.body if isinstance(part, ast.FunctionDef) and part.name == "check"]
        if not found:
            return None
        check = found[-1]
        asserts = [part for part in check.body if isinstance(part, ast.Assert)]
        parameters = {node.arg for node in ast.walk(check.args) if isinstance(node, ast.arg)}
        for part in check.body:
            if not isinstance(part, ast.Assert) and any(_tests_something(node, parameters) for node in ast.walk(part)):
                return None
        ast.unparse(module)  # raises where it is nested too deeply to be written
        keys = tuple(map(ast.unparse, asserts))

    def keep(places: Iterable[int]) -> TestSuite:
        kept = {asserts[place] for place in places}
        function = copy.copy(check)
        function.body = [part for part in check.body if not isinstance(part, ast.Assert) or part in kept]
        body = [function if part is check else part for part in module.body]
        with long_integers():
            return replace(suite, source=f"{ast.unparse(ast.Module(body, []))}\n")

    return _Tests(keys, keep)


def _tests_something(node: ast.AST, parameters: Collection[str]) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Name) and node.id in parameters)


_MOST = 3
# In the place of what is expected, so that every program fails, and the verdict says what it gave.
_NOBODY_KNOWS = "no program gives this: raypoly asks what is given"


def example_inputs(problem: Problem) -> Sequence[Problem]:
    """The problem once for each of its first public tests, or else first tests, without what is expected.

    Empty where tests state no inputs, as a `check` does, or are broken.

    """
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
