"""A program of the tests with all left out that changes neither its answers nor how its work grows, run right here."""

import random
from collections.abc import Sequence
from typing import Any

from raypoly.strategies.traced_runs.mutated_inputs import inputs_of
from raypoly.strategies.traced_runs.observer import read_source
from raypoly.strategies.traced_runs.reduce import Reduction
from raypoly.strategies.traced_runs.sites import without


def found(
    source: str,
    entry_point: str,
    tests: Sequence[Sequence[Any]],
    prelude: str = "",
    keywords: Sequence[str] = (),
    passed: bool = True,
) -> dict[str, Any]:
    """What `Reduction` says of a program, which is the tests' own: it runs in this process."""
    namespace: dict[str, Any] = {"__name__": "__candidate__"}
    exec(prelude, namespace)
    state = random.getstate()  # a reduction seeds it
    try:
        return Reduction(source, entry_point, namespace, inputs_of(tests), keywords, passed).result()
    finally:
        random.setstate(state)


def observe(code: str, prelude: str, entry_point: str, small: list[Any] | None, large: list[Any] | None) -> Any:
    """A puzzle's evidence as plain data; without arguments by syntax only. Raises `SyntaxError`."""
    evidence = read_source(code, entry_point)
    if small is None or large is None:
        return evidence | {"growth": {}, "strategy": ""}
    return evidence | found(code, entry_point, [small, large], prelude)


def reduced(
    source: str, entry_point: str, tests: Sequence[Sequence[Any]], prelude: str = "", keywords: Sequence[str] = ()
) -> str:
    """The source that remains."""
    result = found(source, entry_point, tests, prelude, keywords)
    assert result["known"], source
    return without(source, {number: (way, value) for number, way, value in result["choices"]})
