"""Run an instrumented program once and count what its constructs do."""

from __future__ import annotations

import builtins
import copy
import functools
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from raypoly.strategies.live_code.constructs import may_call
from raypoly.strategies.traced_runs.instrument import FILE, Instrumented

RECURSION = -1
"""The number under which calls of functions that are already running are counted."""
_GENERATOR = 0x20  # inspect.CO_GENERATOR
_INNER = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})
_MAX_ITEMS = 10_000


class _Enough(BaseException):
    """The program did more than it may; no `except Exception` in it gets in the way."""


@dataclass
class MeteredRun:
    """What one run did."""

    counts: Counter[int] = field(default_factory=Counter)
    left: dict[int, list[dict[str, object]]] = field(default_factory=dict)
    """For each loop that reports: the local names after each time it ended."""
    ended: bool = False
    outcome: object = None
    """What it returned and its arguments afterwards; the exception's name where it raised."""
    events: int = 0


@dataclass
class _Meter:
    run: MeteredRun
    limit: int
    skip: frozenset[int]
    """Numbers of constructs that do nothing: loops make no round, maps and comprehensions give nothing."""

    def tick(self, number: int) -> None:
        self.run.counts[number] += 1
        self.run.events += 1
        if self.run.events > self.limit:
            raise _Enough

    def each(self, number: int, items: Iterable[Any]) -> Iterator[Any]:
        if number in self.skip:
            return
        for item in items:
            self.tick(number)
            yield item

    def test(self, number: int, value: object) -> object:
        if number in self.skip:
            return False
        if value:
            self.tick(number)
        return value

    def map(self, number: int, function: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return map(function, self.each(number, items[0]), *items[1:])

    def filter(self, number: int, function: Callable[..., Any] | None, items: Iterable[Any]) -> Iterator[Any]:
        return filter(function, self.each(number, items))

    def reduce(self, number: int, function: Callable[..., Any], items: Iterable[Any], *initial: Any) -> Any:
        if number in self.skip:
            return initial[0] if initial else next(iter(items), 0)
        return functools.reduce(function, self.each(number, items), *initial)

    def left(self, number: int, names: dict[str, object]) -> None:
        self.run.left.setdefault(number, []).append(dict(names))

    def names(self) -> dict[str, object]:
        """What the rewritten program calls."""
        return {
            "@each": self.each,
            "@test": self.test,
            "@map": self.map,
            "@filter": self.filter,
            "@reduce": self.reduce,
            "@left": self.left,
            "@locals": builtins.locals,
            "@list": list,
            "@set": set,
            "@iter": iter,
            "@second": lambda _, items, *rest: iter(items),
        }

    def profiler(self) -> Callable[[FrameType, str, object], None]:
        """Counts calls of functions that are already running; comprehension and generator frames are no calls."""
        active: Counter[object] = Counter()

        def profile(frame: FrameType, event: str, _: object) -> None:
            code = frame.f_code
            if code.co_filename != FILE or code.co_flags & _GENERATOR or code.co_name in _INNER:
                return
            if event == "call":
                active[code] += 1
                if active[code] > 1:
                    self.tick(RECURSION)
            elif event == "return":
                active[code] -= 1

        return profile


def execute(
    program: Instrumented,
    prelude: str,
    entry_point: str,
    args: list[Any],
    limit: int,
    skip: frozenset[int] = frozenset(),
    recursion: bool = False,
) -> MeteredRun:
    """Run the program on a copy of `args`; what it raises ends the run and is no error here.

    `limit` bounds the events counted, never the clock, so that a run gives the same counts on a busy machine.
    """
    run = MeteredRun()
    meter = _Meter(run, limit, skip)
    scope: dict[str, Any] = {"__name__": "candidate", **meter.names()}
    mine = copy.deepcopy(args)
    try:
        if prelude:
            exec(compile(prelude, "<prelude>", "exec"), scope)
        exec(program.code, scope)
        function = eval(entry_point, scope)
        if recursion and (program.may_recur or may_call(prelude)):
            sys.setprofile(meter.profiler())
        run.outcome = (_plain(function(*mine)), mine)
        run.ended = True
    except BaseException as error:  # noqa: BLE001  the program may raise anything, SystemExit included
        run.outcome = type(error).__name__
    finally:
        sys.setprofile(None)
    return run


def _plain(value: object) -> object:
    """An iterator's items instead of the iterator; they are computed only when somebody asks."""
    return list(itertools.islice(value, _MAX_ITEMS)) if isinstance(value, Iterator) else value
