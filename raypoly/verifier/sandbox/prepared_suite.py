"""A problem's tests, ready to run: encoded inputs and expected answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from raypoly.core.errors import BrokenTests
from raypoly.core.values import Comparison, Problem
from raypoly.data.formats.long_integers import loads
from raypoly.verifier.sandbox.child import plain_data

# equal values differ in size: `True` takes a byte, 1 takes nine
_SPELLING, _SMALL_ANSWER = 16, 1 << 16
DEFAULT_COUNTERS = ("steps", "elements", "depth")


@dataclass(frozen=True)
class Case:
    """One call, its expected result and its budget."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    expected: Any
    budget: Mapping[str, int] | None = None

    @cached_property
    def message(self) -> bytes:
        """The message for the candidate, without the expected value."""
        return plain_data.pack((self.args, dict(self.kwargs), None if self.budget is None else dict(self.budget), None))

    @cached_property
    def unlimited(self) -> bytes:
        """The same without budget, for calibration."""
        return plain_data.pack((self.args, dict(self.kwargs), None, None))

    @cached_property
    def expected_message(self) -> bytes | None:
        """The answer with the expected value; None if equal bytes would not mean an equal value."""
        try:
            return plain_data.encode(("ok", self.expected, None, None)) if _equals_itself(self.expected) else None
        except (plain_data.TooLarge, RecursionError):
            return None

    @cached_property
    def most_bytes(self) -> int:
        """Most bytes of an answer that could equal the expected value; a larger one is wrong unread."""
        try:
            return _SPELLING * len(plain_data.encode(self.expected)) + _SMALL_ANSWER
        except (plain_data.TooLarge, RecursionError):
            return plain_data.MAX_BYTES


@dataclass(frozen=True)
class Cases:
    cases: tuple[Case, ...]
    comparison: Comparison = "exact"
    kept: dict[str, Any] = field(default_factory=dict, compare=False)
    """What others have made of them."""

    @cached_property
    def counted(self) -> bool:
        return any(case.budget is not None for case in self.cases)


@dataclass(frozen=True)
class Script:
    input: bytes
    output: str


def unsendable(problem: Problem, what: plain_data.Opaque) -> BrokenTests:
    """The problem's own fault, whatever the program; raise it."""
    return BrokenTests(
        f"The tests of problem {problem.id} call it with {what!r}, which can't be handed to a program in another"
        " process: plain values can, nodes, and builtins by their names."
    )


Suite = Cases | tuple[Script, ...] | None
"""None for a `check` that needs a process of its own."""


def read_suite(problem: Problem) -> Suite:
    """Parse JSON tests. Raises `BrokenTests` if they don't follow `TestSuite`."""
    kind = problem.tests.kind
    if kind == "run":
        return (Script(problem.tests.source.encode("utf-8", "replace"), ""),)
    try:
        rows = loads(problem.tests.source)
        if not rows:
            raise ValueError("there is none")
        if kind == "stdin":
            return tuple(Script(row["input"].encode(), row["output"] + "") for row in rows)
        if kind == "operations":
            cases = tuple(Case((row["operations"], row["args"]), {}, row["expected"]) for row in rows)
        else:
            cases = tuple(Case(tuple(r["args"]), r.get("kwargs", {}), r["expected"], r.get("budget")) for r in rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenTests(
            f"The tests of problem {problem.id} are not a JSON list of tests of kind {kind}: {error!r}."
        ) from error
    for case in cases:
        unknown = set(case.budget or ()) - set(DEFAULT_COUNTERS)
        if unknown:
            raise BrokenTests(
                f"The tests of problem {problem.id} have a budget of {', '.join(sorted(unknown))}; "
                f"known: {', '.join(DEFAULT_COUNTERS)}."
            )
    return Cases(cases, problem.tests.comparison)


def _equals_itself(value: Any) -> bool:
    # naN equals not itself, and what is no plain data has no bytes of its own
    kind = type(value)
    if kind is float:
        return bool(value == value)
    if kind in (list, tuple):
        return all(map(_equals_itself, value))
    return kind in (int, str, bool, bytes, type(None))
