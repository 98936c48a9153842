"""Count what a program spends, deterministically: steps, live elements and depth. Going over ends the process.

- steps: statements begun in functions (`line` events), plus Python-level calls and generator resumptions (`call`
  events). A comprehension is one statement whatever its length; a lambda is a step a call; a generator expression a
  step an element. At module level a statement counts when it is begun again (a loop), calls always; what loading the
  module cost is part of every test's count.
- elements: the sum of `len` over the exact list, dict, set and tuple locals of live functions, looked at when a
  statement begins or a function returns, plus a comprehension's result when it is done, plus what the module keeps in
  its globals; the peak counts.
- depth: nested Python frames; comprehensions, generator expressions and the outermost function with `yield` left out.

The counters live in closures of functions that a candidate has no way to name (`guard.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from os import _exit
from types import FrameType
from typing import Any

from raypoly.sandbox.child import guard

_COUNTERS = ("steps", "elements", "depth")
FILE = "<candidate>"
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
_CONTAINERS = (list, dict, set, tuple)
_ATOMS = (int, float, bool, str, type(None), range)
_GENERATORS = 0x20 | 0x80 | 0x200
_NO_LIMIT = float("inf")

Report = Callable[..., None]
Trace = Callable[[FrameType, str, Any], Any]
_gettrace, _settrace = sys.gettrace, sys.settrace


class Counters:
    """The running counts of one test, and their limits."""

    __slots__ = (
        "base",
        "deepest",
        "depth",
        "generators",
        "kept",
        "known",
        "limits",
        "live",
        "peak",
        "report",
        "steps",
        "total",
        "trace",
    )

    def __init__(self, report: Report, known: frozenset[str]) -> None:
        self.report = report
        self.known = known
        """Global names that were there before the candidate."""
        self.trace: Trace | None = None
        self.base = (0, 0)
        """Steps and elements of loading the module."""
        self.limits = (_NO_LIMIT, _NO_LIMIT, _NO_LIMIT)
        self.live: list[int] = []
        """Elements of each live function, outermost first."""
        self.kept: dict[int, Any] = {}
        """All that a look has seen in locals, by identity: the last reference to it must not be dropped in the tracer,
        where its finalizer would run uncounted."""
        self.generators = 0
        """Functions with `yield` that run now, one within the other."""
        self.steps = self.total = self.peak = self.depth = self.deepest = 0


def install(report: Report, namespace: dict[str, Any]) -> Counters:
    """Close the ways to tamper, and count from now on: frames that begin after this call, to the process's end."""
    counters = Counters(report, frozenset(namespace))
    counters.trace = _tracer(counters)
    _settrace(counters.trace)
    guard.close(report)
    return counters


def loaded(counters: Counters, namespace: dict[str, Any]) -> None:
    """The module's code has run: what it spent and keeps is charged to every test."""
    kept = [value for name, value in namespace.items() if name not in counters.known]
    counters.base = (counters.steps, _elements(kept))


def begin(counters: Counters, limits: dict[str, int] | None) -> None:
    """Start a test's counts. `limits` names any of `_COUNTERS`; None counts without end."""
    counters.limits = tuple((limits or {}).get(name, _NO_LIMIT) for name in _COUNTERS)  # type: ignore[assignment]
    counters.steps, counters.total = counters.base
    counters.peak = counters.total
    counters.depth = counters.deepest = counters.generators = 0
    counters.live.clear()
    if counters.steps > counters.limits[0]:
        _over(counters, 0, counters.steps)
    if counters.peak > counters.limits[1]:
        _over(counters, 1, counters.peak)


def counts(counters: Counters) -> dict[str, int]:
    """The test's counts, at its end. A tracer that is no longer in place means that somebody switched it off."""
    if _gettrace() is not counters.trace:
        guard.tampered(counters.report, "the step counter was switched off")
    return {"steps": counters.steps, "elements": counters.peak, "depth": counters.deepest}


def _over(counters: Counters, which: int, count: int) -> None:
    counters.report("over", _COUNTERS[which], count)
    _exit(0)


def _elements(values: Any) -> int:
    return sum(len(value) for value in values if _is_one_of(value, _CONTAINERS))


def _is_one_of(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether its class is one of these, by identity: to compare classes is to run their metaclass."""
    kind = type(value)
    for known in kinds:  # noqa: SIM110 - a generator expression would cost three times as much
        if kind is known:
            return True
    return False


def _step(counters: Counters) -> None:
    counters.steps += 1
    if counters.steps > counters.limits[0]:
        _over(counters, 0, counters.steps)


def _look(counters: Counters, extra: int = 0) -> None:
    if counters.total + extra > counters.peak:
        counters.peak = counters.total + extra
        if counters.peak > counters.limits[1]:
            _over(counters, 1, counters.peak)


def _look_at_frame(counters: Counters, frame: FrameType) -> None:
    values = frame.f_locals.values()
    for value in values:
        if not _is_one_of(value, _ATOMS):
            counters.kept[id(value)] = value
    own = _elements(values)
    counters.total += own - counters.live[-1]
    counters.live[-1] = own
    _look(counters)


def _enter(counters: Counters) -> None:
    counters.depth += 1
    if counters.depth > counters.deepest:
        counters.deepest = counters.depth
        if counters.depth > counters.limits[2]:
            _over(counters, 2, counters.depth)


def _tracer(counters: Counters) -> Trace:
    """The trace function for `call` events; it picks one for the rest of the frame by what kind of frame it is."""
    on_module = _module_tracer(counters)

    def on_call(frame: FrameType, event: str, arg: Any) -> Trace | None:
        code = frame.f_code
        if code.co_filename != FILE:
            return None
        name = code.co_name
        if name in _COMPREHENSIONS:
            frame.f_trace_lines = False
            return on_comprehension
        if name == "<module>":
            return on_module
        _step(counters)
        if name == "<genexpr>":
            return None
        if code.co_flags & _GENERATORS:
            counters.live.append(0)
            counters.generators += 1
            if counters.generators > 1:
                _enter(counters)
            return on_generator
        _enter(counters)
        counters.live.append(0)
        if name == "<lambda>":
            frame.f_trace_lines = False
        return on_function

    def on_comprehension(frame: FrameType, event: str, arg: Any) -> None:
        if event == "return" and _is_one_of(arg, _CONTAINERS):
            _look(counters, len(arg))

    def on_frame(frame: FrameType, event: str) -> None:
        if event == "line":
            _step(counters)
            _look_at_frame(counters, frame)
        elif event == "return":
            _look_at_frame(counters, frame)
            counters.total -= counters.live.pop()

    def on_generator(frame: FrameType, event: str, arg: Any) -> None:
        on_frame(frame, event)
        if event == "return":
            counters.depth -= counters.generators > 1
            counters.generators -= 1

    def on_function(frame: FrameType, event: str, arg: Any) -> None:
        on_frame(frame, event)
        if event == "return":
            counters.depth -= 1

    return on_call


def _module_tracer(counters: Counters) -> Trace:
    """At module level a statement costs a step when it is begun again."""
    begun: set[int] = set()

    def on_module(frame: FrameType, event: str, arg: Any) -> None:
        if event == "line":
            if frame.f_lineno in begun:
                _step(counters)
            begun.add(frame.f_lineno)

    return on_module
