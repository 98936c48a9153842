"""How far a program came in its tests, and the words for it."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raypoly.values import Failure, Status

_DETAIL = 300
_SHOWN = 200
_REPR = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxdict = 24
_REPR.maxstring = _REPR.maxother = 120


class TestStopped(Exception):
    """A test did not come to a result: a status and why."""

    def __init__(self, status: Status, why: str, *, alive: bool = False, by_clock: bool = False) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.alive = alive
        """Whether the program can be asked the next test."""
        self.by_clock = by_clock
        """Whether another moment might have let it come through."""


@dataclass(frozen=True)
class Refusal:
    """Of a program that can't be compiled."""

    stop: TestStopped
    """As the program's own process would end."""
    cpu_seconds: float
    """By the reader's clock, which may count a moment to the next program: right in sum, 0 now and then."""


@dataclass
class TestsOutcome:
    """How far a program came."""

    status: Status = "passed"
    passed: int = 0
    total: int = 0
    detail: str = ""
    failure: Failure | None = None
    cpu_seconds: float = 0.0
    parses: bool = True
    repeatable: bool = True
    counts: list[dict[str, int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """CPU seconds of each test, where they were asked for."""

    def wrong(self, test: int, call: str, got: str, expected: str = "", why: str = "") -> None:
        """Note a wrong answer; only the first failure counts."""
        if self.status == "passed":
            self.status = "wrong"
            should = f", expected {expected}" if expected else f": {why}"
            self.detail = one_line(f"test {test}: {call} gave {got}{should}")
            self.failure = Failure(
                test, one_line(call, _SHOWN), one_line(got, _SHOWN), one_line(expected or why, _SHOWN)
            )

    def stop(self, stop: TestStopped, test: int, call: str, expected: str = "") -> None:
        """Note that a test did not come to a result; 0 is loading the program."""
        self.repeatable = self.repeatable and not stop.by_clock
        if self.status == "passed":
            self.status = stop.status
            self.detail = one_line(f"test {test}: {call}: {stop.why}" if test else f"loading the program: {stop.why}")
            self.failure = Failure(test, one_line(call, _SHOWN), one_line(stop.why, _SHOWN), one_line(expected, _SHOWN))

    def refuse(self, refusal: Refusal, test: int = 0, call: str = "", expected: str = "") -> TestsOutcome:
        """Note that the program can't be compiled, as its first process would find; this outcome."""
        self.stop(refusal.stop, test, call, expected)
        self.parses, self.cpu_seconds = False, refusal.cpu_seconds
        return self


def one_line(text: str, size: int = _DETAIL) -> str:
    """One line of at most `size` characters."""
    line = " ".join(text[: 4 * size].split())
    return line if len(line) <= size else line[: size - 3] + "..."


def short_repr(value: Any, size: int = 80) -> str:
    """`value` for a person, in at most `size` characters and little time, however large it is."""
    try:
        return one_line(_REPR.repr(value), size)
    except ValueError:  # Python refuses to write out an int of thousands of digits
        return "a number of thousands of digits"


def call_text(name: str, args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """A call as a person would write it, in at most 120 characters."""
    words = [*map(short_repr, args), *(f"{key}={short_repr(value)}" for key, value in kwargs.items())]
    return one_line(f"{name}({', '.join(words)})", 120)
