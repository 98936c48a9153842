"""Outcome of a program's tests, and the words for it."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raypoly.core.values import Failure, Status
from raypoly.verifier.sandbox.child.plain_data import Typed

ELSEWHERE = ("elsewhere",)
_DETAIL = 300
_SHOWN = 200


class _Repr(reprlib.Repr):
    """Short also for what the library's own would write out whole first."""

    def repr_Typed(self, value: Typed, level: int) -> str:
        return value.shown(lambda content: self.repr1(content, level - 1)) if level > 0 else "..."

    repr_Counter = repr_OrderedDict = repr_defaultdict = reprlib.Repr.repr_dict


_REPR = _Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxdict = 24
_REPR.maxstring = _REPR.maxother = 120


class TestStopped(Exception):
    """A test ended without a result."""

    def __init__(
        self,
        status: Status,
        why: str,
        *,
        alive: bool = False,
        may_wait: bool = False,
        by_clock: bool = False,
        raised: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.alive = alive
        """Whether the program can run the next test."""
        self.may_wait = may_wait
        """Whether its process may have stayed to be observed."""
        self.by_clock = by_clock
        """Whether a second run might give another result."""
        self.raised = raised
        """The name of a builtin exception, which a check may expect, and its text; empty if it was none."""


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Refusal:
    """A program that can't be compiled."""

    stop: TestStopped
    cpu_seconds: float
    """By the reading child's clock, which may count a moment for the next program: right in sum."""


@dataclass
class TestsOutcome:
    """Passed tests and the first failure."""

    status: Status = "passed"
    passed: int = 0
    total: int = 0
    detail: str = ""
    failure: Failure | None = None
    cpu_seconds: float = 0.0
    parses: bool = True
    repeatable: bool = True
    observed: Any = ELSEWHERE
    """What the program's own process said of it after the tests; None if nothing."""
    counts: list[dict[str, int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """CPU seconds of each test, if requested."""

    def wrong(self, test: int, call: str, got: str, expected: str = "", why: str = "") -> None:
        """Record a wrong answer. Only the first failure counts."""
        if self.status == "passed":
            self.status, got = "wrong", without_addresses(got)
            should = f", expected {expected}" if expected else f": {why}"
            self.detail = one_line(f"test {test}: {call} gave {got}{should}")
            self.failure = Failure(
                test, one_line(call, _SHOWN), one_line(got, _SHOWN), one_line(expected or why, _SHOWN)
            )

    def stop(self, stop: TestStopped, test: int, call: str, expected: str = "") -> None:
        """Record a test without a result; 0 is loading the program."""
        self.repeatable = self.repeatable and not stop.by_clock
        if self.status == "passed":
            self.status, why = stop.status, without_addresses(stop.why)
            self.detail = one_line(f"test {test}: {call}: {why}" if test else f"loading the program: {why}")
            self.failure = Failure(test, one_line(call, _SHOWN), one_line(why, _SHOWN), one_line(expected, _SHOWN))

    def refuse(self, refusal: Refusal, test: int = 0, call: str = "", expected: str = "") -> TestsOutcome:
        """Record that the program can't be compiled. Returns this outcome."""
        self.stop(refusal.stop, test, call, expected)
        self.parses, self.cpu_seconds = False, refusal.cpu_seconds
        return self


def without_addresses(text: str) -> str:
    """Text without addresses: `<map object at 0x...>` lies elsewhere each time."""
    return _ADDRESS.sub(" at 0x...", text)


def one_line(text: str, size: int = _DETAIL) -> str:
    line = " ".join(text[: 4 * size].split())
    return line if len(line) <= size else line[: size - 3] + "..."


def short_repr(value: Any) -> str:
    """`value` in at most 80 characters, in little time however large it is."""
    try:
        return one_line(_REPR.repr(value), 80)
    except ValueError:  # Python refuses to write out an int of thousands of digits
        return "a number of thousands of digits"


def call_text(name: str, args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """A call as source text, at most 120 characters."""
    words = [*map(short_repr, args), *(f"{key}={short_repr(value)}" for key, value in kwargs.items())]
    return one_line(f"{name}({', '.join(words)})", 120)
