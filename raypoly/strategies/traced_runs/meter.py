"""Run an instrumented program's tests and count what its constructs do.

The program runs under the names of a scored run. What it calls to be counted are builtins whose names are no
identifiers (`instrument.py`); its results are compared as plain data, so that no code of its own decides.
"""

from __future__ import annotations

import builtins
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Self

from raypoly.strategies.traced_runs.instrument import FILE
from raypoly.verifier.sandbox.child import plain_data

RECURSION = -1
"""The number under which calls of functions that are already running are counted."""
_GENERATOR = 0x20  # inspect.CO_GENERATOR
_INNER = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})
_PLAIN = (int, bool, float, str, type(None))
_BUILTINS, _locals = vars(builtins), builtins.locals
_setprofile, _getprofile, _getframe = sys.setprofile, sys.getprofile, sys._getframe
_getrecursionlimit, _setrecursionlimit = sys.getrecursionlimit, sys.setrecursionlimit


class _Enough(BaseException):
    """The program did more than it may. Whoever catches it gains nothing: the run does not count as ended."""


@dataclass
class MeteredRun:
    """What one call did."""

    counts: Counter[int] = field(default_factory=Counter)
    left: dict[int, list[dict[str, object]]] = field(default_factory=dict)
    """For each loop that reports: the plain values of the names it sets, after each time it ended."""
    ended: bool = False
    outcome: bytes | str = ""
    """What it returned and its arguments afterwards, encoded; the exception's name where it raised."""
    events: int = 0


class Meter:
    """Counts for one call at a time, within a `with meter` block."""

    def __init__(self, depth: int = 0) -> None:
        """`depth`: Python frames below a scored run's `program()`; 0 leaves the limit of recursion as it is."""
        self._depth, self._extra = depth, 0
        self.run = MeteredRun()
        self.limit = 0
        """Events of a call. It bounds a run by what it does, never by the clock: a busy machine counts the same."""
        self.skip: frozenset[int] = frozenset()
        """Numbers of constructs that do nothing: loops make no round, maps and comprehensions give nothing."""
        self.recursion = False
        """Whether calls of functions that are already running are counted."""
        self.lost = False
        """Whether a program that ran to its end had ended that count, as by recursion to the limit."""
        self.returned: Any = None
        """What the last call returned."""
        self._active: Counter[object] = Counter()

    def __enter__(self) -> Self:
        """Give programs the names that they are rewritten to call."""
        _BUILTINS.update(self._names())
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names():
            _BUILTINS.pop(name, None)

    def call(self, function: Callable[..., Any], args: Sequence[Any], load: MeteredRun, below: int = 0) -> MeteredRun:
        """One call's counts, with those of `load`, loading the program. What it raises ends it and is no error here.

        `below`: frames between it and `program()` in a scored run.
        """
        if self._depth:  # the program has as many frames left as there
            extra = frame_depth() - self._depth - below
            _setrecursionlimit(_getrecursionlimit() + extra - self._extra)
            self._extra = extra
        self.run = run = MeteredRun(Counter(load.counts), {key: list(value) for key, value in load.left.items()})
        self._active = Counter()
        if self.recursion:
            _setprofile(self._profile)  # one that has raised is gone
        try:
            self.returned = result = function(*args)
            run.outcome = plain_data.encode((result, tuple(args)))
            run.ended = run.events <= self.limit  # else it caught what was to end it
        except BaseException as error:  # noqa: BLE001  the program may raise anything, SystemExit included
            run.outcome = type(error).__name__
        finally:
            if self.recursion:
                self.lost = self.lost or (run.ended and _getprofile() is None)
                _setprofile(None)
        return run

    def _tick(self, number: int) -> None:
        self.run.counts[number] += 1
        self.run.events += 1
        if self.run.events > self.limit:
            raise _Enough

    def _each(self, number: int, items: Iterable[Any]) -> Iterator[Any]:
        # the items, asked for when a loop would ask for them
        iterator = iter(items)
        return iter(()) if number in self.skip else self._counted(number, iterator)

    def _counted(self, number: int, iterator: Iterator[Any]) -> Iterator[Any]:
        for item in iterator:
            self._tick(number)
            yield item

    def _test(self, number: int, value: object) -> bool:
        # whether the value is true, asked once, as a loop asks
        if number in self.skip:
            return False
        is_true = bool(value)
        if is_true:
            self._tick(number)
        return is_true

    def _folded(self, number: int, items: Iterable[Any], initial: bool) -> Iterator[Any]:
        # the items of a `reduce`; only a first one if it is to do nothing and has no initial value
        try:
            iterator = iter(items)
        except TypeError:
            raise TypeError("reduce() arg 2 must support iteration") from None
        if number not in self.skip:
            return self._counted(number, iterator)
        return iter(()) if initial else iter((next(iterator, 0),))

    def _left(self, number: int, names: dict[str, object], wanted: tuple[str, ...]) -> None:
        ends = self.run.left.setdefault(number, [])
        if len(ends) < 2:  # a loop that ended more than once is not asked for its values
            ends.append({name: plain_value(names.get(name)) for name in wanted})

    def _names(self) -> dict[str, object]:
        return {
            "@each": self._each,
            "@test": self._test,
            "@folded": self._folded,
            "@left": self._left,
            "@locals": _locals,
            "@list": list,
            "@set": set,
            "@iter": iter,
            "@second": lambda _, items, *rest: iter(items),
        }

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        # count calls of functions that are already running; comprehension and generator frames are no calls
        code, active = frame.f_code, self._active
        if code.co_filename != FILE or code.co_flags & _GENERATOR or code.co_name in _INNER:
            return
        if event == "call":
            active[code] += 1
            if active[code] > 1:
                self._tick(RECURSION)
        elif event == "return":
            active[code] -= 1


def frame_depth() -> int:
    """Python frames of this thread, its caller's included."""
    frame, depth = _getframe(1), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth


class Unlike:
    """Stands for a value that is not plain: equal to nothing else."""


def plain_value(value: object) -> object:
    """A copy of `value` if it is made of exact plain builtins, else an `Unlike`."""
    kind = type(value)
    if any(kind is plain for plain in _PLAIN):
        return value
    if kind is list:
        return list(map(plain_value, value))  # type: ignore[call-overload]
    if kind is tuple:
        return tuple(map(plain_value, value))  # type: ignore[call-overload]
    return Unlike()
