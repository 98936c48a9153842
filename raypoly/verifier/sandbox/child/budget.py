"""Count what a program spends, deterministically: steps, live elements, depth. Going over ends the process.

- steps: statements begun in functions (`line` events; each statement has a line of its own), Python calls and generator
  resumptions (`call` events). A lambda is a step a call, a generator expression a step an element. A test's first
  comprehensions are one statement each; an item of any other is a step, as of one that assigns, or in a program that
  names a method that changes a container. At module level a statement counts when it is begun again. Loading the module
  is part of every test's count, and so is a test that left the module changed.
- elements: what live functions and the module hold, however nested (`holdings.py`), looked at when a statement begins
  or a function returns, plus a comprehension's result; the peak counts.
- depth: nested Python frames, without comprehensions, generator expressions and the outermost function with `yield`.

The counters live in closures of functions that a candidate has no way to name (`guard.py`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from opcode import opmap
from os import _exit
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any

from raypoly.verifier.sandbox.child import guard, holdings

_COUNTERS = ("steps", "elements", "depth")
FILE = "<candidate>"
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
_CONTAINERS = (list, dict, set)
# comprehensions of a test without a step an item: a plain solution has one or two, one that chops its work many
_FREE_COMPREHENSIONS = 4
# A look at few objects is made at each line. After a dearer one, lines pass without: looks grow no faster than lines.
_CHEAP_LOOK, _OBJECTS_A_LINE = 128, 8
_NO_LIMIT = float("inf")

Report = Callable[..., None]
Trace = Callable[[FrameType, str, Any], Any]
_gettrace, _settrace = sys.gettrace, sys.settrace


class Counters:
    """Running counts of one test, and their limits."""

    __slots__ = (
        "base",
        "callers",
        "changed",
        "comprehensions",
        "deepest",
        "depth",
        "free",
        "generators",
        "held",
        "kept",
        "limits",
        "live",
        "pause",
        "peak",
        "reached",
        "report",
        "steps",
        "total",
        "trace",
    )

    def __init__(self, report: Report, namespace: dict[str, Any], free: int, lasting: bool = False) -> None:
        self.report = report
        self.free = free
        """Comprehensions of a test that cost no step an item."""
        self.held = holdings.Holdings(namespace, lasting)
        self.trace: Trace | None = None
        self.changed: Callable[[], bool] | None = None
        """Whether a module, or what is in one, has changed. None if the program has no way to a module."""
        self.base = 0
        """Steps of loading, and of tests that left something for the next."""
        self.reached = 0
        """Depth of such tests."""
        self.kept = 0
        """What was left by then, as a number."""
        self.limits = (_NO_LIMIT, _NO_LIMIT, _NO_LIMIT)
        self.live: list[FrameType] = []
        """Functions that run now, outermost first."""
        self.callers: list[holdings.FrameLocals | None] = []
        """What all but the innermost held when they called; None if the called may change it."""
        self.generators = self.comprehensions = 0
        """Nested functions with `yield` that run now; comprehensions begun in this test."""
        self.steps = self.total = self.peak = self.depth = self.deepest = self.pause = 0


def install(report: Report, namespace: dict[str, Any], code: CodeType) -> Counters:
    """Close the ways to tamper, then count frames that begin after this call."""
    # looking at all modules after each test costs time: only where the program has a way to one
    watched = reaches_modules(code, namespace)
    free = 0 if changes_containers(code) else _FREE_COMPREHENSIONS
    counters = Counters(report, namespace, free, not sets_attributes(code))
    counters.held.know_code(code)
    counters.trace = _tracer(counters)
    # before the guard replaces `settrace`; frames that exist already are not traced
    _settrace(counters.trace)
    counters.changed = guard.close(report, watched=watched)
    return counters


def loaded(counters: Counters) -> None:
    """Charge what loading the module spent to every test."""
    # else work could be done while loading, and be free in every test
    counters.base = counters.steps
    counters.held.loaded()
    counters.kept = counters.held.left()


def begin(counters: Counters, limits: dict[str, int] | None, arguments: Any) -> None:
    """Start a test's counts. `limits` names any of `_COUNTERS`; None counts without end."""
    kept = counters.held.left()
    if kept != counters.kept:  # the last test's work is part of this one's
        counters.kept, counters.base, counters.reached = kept, counters.steps, counters.deepest
    counters.limits = tuple((limits or {}).get(name, _NO_LIMIT) for name in _COUNTERS)  # type: ignore[assignment]
    counters.steps = counters.base
    counters.peak = counters.total = counters.pause = counters.comprehensions = 0
    counters.depth = counters.generators = 0
    counters.deepest = counters.reached
    counters.live.clear()
    counters.callers.clear()
    counters.held.begin(arguments)
    # loading alone may be over this test's budget
    for which, count in ((0, counters.steps), (2, counters.deepest)):
        if count > counters.limits[which]:
            _over(counters, which, count)
    _look(counters)


def counts(counters: Counters) -> dict[str, int]:
    """Counts at a test's end. A tracer no longer in place was switched off."""
    if _gettrace() is not counters.trace:
        guard.tampered(counters.report, "the step counter was switched off")
    if counters.changed is not None and counters.changed():
        guard.tampered(counters.report, "the program changed a module")
    return {"steps": counters.steps, "elements": counters.peak, "depth": counters.deepest}


def _over(counters: Counters, which: int, count: int) -> None:
    counters.report("over", _COUNTERS[which], count)
    _exit(0)


def _step(counters: Counters) -> None:
    counters.steps += 1
    if counters.steps > counters.limits[0]:
        _over(counters, 0, counters.steps)


def _note(counters: Counters, elements: int) -> None:
    if elements > counters.peak:
        counters.peak = elements
        if elements > counters.limits[1]:
            _over(counters, 1, elements)


def _look(counters: Counters, own: holdings.FrameLocals | None = None) -> None:
    """Count what is held, unless the last count was too dear to repeat yet. `own`: the innermost's locals."""
    if counters.pause:
        counters.pause -= 1
        return
    # Callers' locals are those of the moment of their call (`callers`), since nothing of theirs changes while the
    # called runs, unless both share a cell; reading all live frames at each line would be quadratic in depth.
    held = counters.held
    frames = [kept or held.locals_of(frame) for kept, frame in zip(counters.callers, counters.live, strict=False)]
    if own is not None:
        frames.append(own)
    counters.total, touched = held.count(frames)
    counters.pause = max(0, touched - _CHEAP_LOOK) // _OBJECTS_A_LINE
    _note(counters, counters.total)


def _look_at_frame(counters: Counters, frame: FrameType) -> None:
    own = counters.held.locals_of(frame)
    longest = holdings.longest(own)
    # a comprehension may have grown a container at once between two looks: then this look is not put off
    if longest > 2 * counters.total:
        counters.pause = 0
    _look(counters, own)
    _note(counters, longest)


def _begin_call(counters: Counters, frame: FrameType) -> None:
    if counters.live:
        caller = counters.live[-1]
        shares = caller.f_code.co_cellvars or caller.f_code.co_freevars
        counters.callers.append(None if shares else counters.held.locals_of(caller))
    counters.live.append(frame)


def _end_call(counters: Counters) -> None:
    counters.live.pop()
    if counters.callers:
        counters.callers.pop()


def _enter(counters: Counters) -> None:
    counters.depth += 1
    if counters.depth > counters.deepest:
        counters.deepest = counters.depth
        if counters.depth > counters.limits[2]:
            _over(counters, 2, counters.depth)


def _tracer(counters: Counters) -> Trace:
    """Trace function for `call` events; it picks one for the rest of the frame."""
    on_module = _module_tracer(counters)

    def on_call(frame: FrameType, event: str, arg: Any) -> Trace | None:
        code = frame.f_code
        if code.co_filename != FILE:
            return None
        name = code.co_name
        if name in _COMPREHENSIONS:
            counters.comprehensions += 1
            # with line events each item is a step
            frame.f_trace_lines = counters.comprehensions > counters.free or assigns(code)
            return on_comprehension
        if name == "<module>":
            return on_module
        _step(counters)
        if name == "<genexpr>":
            return None
        if code.co_flags & guard.GENERATORS:
            _begin_call(counters, frame)
            counters.generators += 1
            if counters.generators > 1:
                _enter(counters)
            return on_generator
        _enter(counters)
        _begin_call(counters, frame)
        if name == "<lambda>":
            frame.f_trace_lines = False
        return on_function

    def on_comprehension(frame: FrameType, event: str, arg: Any) -> None:
        if event == "line":
            _step(counters)
        elif event == "return" and type(arg) in _CONTAINERS:
            _note(counters, counters.total + len(arg))

    def on_frame(frame: FrameType, event: str) -> None:
        if event == "line":
            _step(counters)
            _look_at_frame(counters, frame)
        elif event == "return":
            _look_at_frame(counters, frame)
            _end_call(counters)

    def on_generator(frame: FrameType, event: str, arg: Any) -> None:
        on_frame(frame, event)
        if event == "return":
            counters.depth -= counters.generators > 1
            counters.generators -= 1

    def on_function(frame: FrameType, event: str, arg: Any) -> None:
        on_frame(frame, event)
        if event == "return":
            counters.depth -= 1

    counters.held.know(on_call, on_module, on_comprehension, on_frame, on_generator, on_function)
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


_WITH_OWN_LINE = (ast.stmt, ast.excepthandler, ast.match_case)
_DEEPER = 4
_ASSIGNMENTS = frozenset(map(opmap.__getitem__, ("STORE_DEREF", "STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR")))
# names of what changes a container: a comprehension that calls one could be a loop that keeps no items
_CHANGES = """
    add append appendleft clear discard extend extendleft insert pop popitem popleft remove reverse rotate send
    setdefault sort subtract update __setitem__ __iadd__ setitem delitem iadd iconcat heapify heappop heappush
    heappushpop heapreplace insort insort_left insort_right
"""


def compiled(source: str) -> CodeType:
    """Compile with each statement on a line of its own. Raises what `compile` raises."""
    tree = ast.parse(source, FILE)
    line = 0
    # iterative, since a hostile tree may be deeper than the stack
    todo: list[tuple[ast.AST, int]] = [(tree, 0)]
    while todo:
        node, at = todo.pop()
        if isinstance(node, _WITH_OWN_LINE):
            line = at = line + 1
        if "lineno" in node._attributes:
            node.lineno = node.end_lineno = at  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
        todo += [(child, at) for child in ast.iter_child_nodes(node)]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPER * limit)  # a tree may be as deep as its text was
    try:
        return compile(tree, FILE, "exec", dont_inherit=True)
    except SyntaxError:
        compile(source, FILE, "exec", dont_inherit=True)  # names the line
        raise
    finally:
        sys.setrecursionlimit(limit)


def changes_containers(code: CodeType) -> bool:
    return any(not set(_CHANGES.split()).isdisjoint(part.co_names) for part in _parts(code))


def reaches_modules(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Whether it imports anything, or its prelude left more than library functions."""
    given = (value for name, value in namespace.items() if name[:2] != "__")
    imports = any(opmap["IMPORT_NAME"] in part.co_code[::2] for part in _parts(code))
    return imports or any(type(value) is not BuiltinFunctionType for value in given)


def sets_attributes(code: CodeType) -> bool:
    return any(opmap["STORE_ATTR"] in part.co_code[::2] for part in _parts(code))


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _parts(constant)


def assigns(code: CodeType) -> bool:
    """Whether a comprehension assigns a variable around it (`:=`), an attribute or an item."""
    return not _ASSIGNMENTS.isdisjoint(code.co_code[::2])
