"""Count what a program spends, deterministically: steps, live elements, depth. Going over ends the process.

- steps: statements begun in functions (a loop's head once an item), Python calls and generator resumptions, which a
  generator expression has once an item. A test's first comprehensions are one statement each; an item of any other is a
  step, as of one that assigns, or in a program that names a method that changes a container. At module level a
  statement counts when it is begun again. Loading the module is part of every test's count, and so is a test that left
  the module changed.
- elements: what live functions and the module hold, however nested (`holdings.py`), looked at when a statement begins
  or a function returns, plus a comprehension's result; the peak counts.
- depth: nested Python frames, without comprehensions, generator expressions and the outermost function with `yield`.

The program's own source counts (`counted_source.py`), so that every Python counts alike; what the library does is
free. The counters live in closures of functions that a candidate has no way to name (`guard.py`).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from opcode import opmap
from os import _exit
from sys import _getframe
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any

from raypoly.verifier.sandbox.child import guard, holdings
from raypoly.verifier.sandbox.child.counted_source import HOOKS, counted

_COUNTERS = ("steps", "elements", "depth")
FILE = "<candidate>"
# whose items come without a step of the program's
_ITERABLES = frozenset({list, tuple, set, frozenset, dict, str, range, map, filter, zip, enumerate})
_DEEPER = 4
_OWN_DEPTH, _ROOM = 10, 5_000  # frames of a hook, and enough for last words
_setrecursionlimit = sys.setrecursionlimit
# comprehensions of a test without a step an item: a plain solution has one or two, one that chops its work many
_FREE_COMPREHENSIONS = 4
# A look at few objects is made at each line. After a dearer one, lines pass without: looks grow no faster than lines.
_CHEAP_LOOK, _OBJECTS_A_LINE = 128, 8
_NO_LIMIT = float("inf")

Report = Callable[..., None]


class Over(BaseException):
    """A test is over its budget, and the parent knows."""


class Counters:
    """Running counts of one test, and their limits."""

    __slots__ = (
        "base",
        "callers",
        "changed",
        "closed",
        "comprehensions",
        "deepest",
        "delegating",
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
        "yielding",
    )

    def __init__(self, report: Report, namespace: dict[str, Any], free: int, lasting: bool = False) -> None:
        self.report = report
        self.free = free
        """Comprehensions of a test that cost no step an item."""
        self.held = holdings.Holdings(namespace, lasting)
        self.changed: Callable[[], bool] | None = None
        """Whether a module, or what is in one, has changed. None if the program has no way to a module."""
        self.closed = False
        """Whether the program leaves nothing, and so can be observed here whatever its end."""
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
        self.yielding: list[bool] = []
        """Whether they are functions with `yield`."""
        self.delegating: set[FrameType] = set()
        """Functions that hand on what another generator yields."""
        self.generators = self.comprehensions = 0
        """How many of `live` are functions with `yield`; comprehensions begun in this test."""
        self.steps = self.total = self.peak = self.depth = self.deepest = self.pause = 0


def install(report: Report, namespace: dict[str, Any], code: CodeType, counting: CodeType) -> Counters:
    """Give `counting`, a program's code with calls put in, what it calls, and close the ways to tamper.

    `code`: the program's, as it was written.
    """
    # looking at all modules after each test costs time: only where the program has a way to one
    watched = reaches_modules(code, namespace)
    free = 0 if changes_containers(code) else _FREE_COMPREHENSIONS
    counters = Counters(report, namespace, free, not sets_attributes(code))
    counters.held.know_code(counting)
    vars(builtins).update(_hooks(counters))
    sys.setrecursionlimit(sys.getrecursionlimit() + _OWN_DEPTH)
    counters.changed = guard.close(report, watched=watched)
    counters.closed = leaves_nothing(code, namespace)
    return counters


def loaded(counters: Counters) -> None:
    """Charge what loading the module spent to every test."""
    # else work could be done while loading, and be free in every test
    counters.base = counters.steps
    if any(name[:1] == "@" for name in counters.held.names()):
        guard.tampered(counters.report, "the program has a name that is none")
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
    counters.yielding.clear()
    counters.held.begin(arguments)
    _check(counters)  # loading alone may be over this test's budget
    _look(counters)


def counts(counters: Counters) -> dict[str, int]:
    """Counts at a test's end."""
    _check(counters)  # last words may have failed
    if counters.changed is not None and counters.changed():
        guard.tampered(counters.report, "the program changed a module")
    return {"steps": counters.steps, "elements": counters.peak, "depth": counters.deepest}


def _check(counters: Counters) -> None:
    for which, count in enumerate((counters.steps, counters.peak, counters.deepest)):
        if count > counters.limits[which]:
            _over(counters, which, count)


def _over(counters: Counters, which: int, count: int) -> None:
    try:
        _setrecursionlimit(_ROOM)  # the program may have left too little to say so
        counters.report("over", _COUNTERS[which], count)
    except BaseException:  # noqa: BLE001 - nothing more can be said
        _exit(0)
    if not counters.closed:
        _exit(0)
    counters.limits = (_NO_LIMIT, _NO_LIMIT, _NO_LIMIT)
    raise Over


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


def _begin_call(counters: Counters, frame: FrameType, generator: bool) -> None:
    """The function of this frame goes on, or begins."""
    _step(counters)
    _join(counters, frame.f_back)
    _push(counters, frame, generator)


def _push(counters: Counters, frame: FrameType, generator: bool) -> None:
    if counters.live:
        caller = counters.live[-1]
        shares = caller.f_code.co_cellvars or caller.f_code.co_freevars
        counters.callers.append(None if shares else counters.held.locals_of(caller))
    counters.live.append(frame)
    counters.yielding.append(generator)
    counters.generators += generator
    if generator and counters.generators < 2:
        return
    counters.depth += 1
    if counters.depth > counters.deepest:
        counters.deepest = counters.depth
        if counters.depth > counters.limits[2]:
            _over(counters, 2, counters.depth)


def _end_call(counters: Counters) -> None:
    counters.live.pop()
    if counters.callers:
        counters.callers.pop()
    generator = counters.yielding.pop()
    counters.depth -= not generator or counters.generators > 1
    counters.generators -= generator


def _top(counters: Counters, frame: FrameType) -> FrameType:
    """The frame, innermost of `live` from now on."""
    if counters.delegating:
        counters.delegating.discard(frame)  # one that was left by an exception is still in it
    if not counters.live or counters.live[-1] is not frame:
        _join(counters, frame)
        if not counters.live or counters.live[-1] is not frame:  # a coroutine goes on
            _step(counters)
            _push(counters, frame, True)
    return frame


def _join(counters: Counters, frame: FrameType | None) -> None:
    """Forget those of `live` that ended in an exception or wait: all that `frame` is not called by."""
    while True:
        waiting = []
        top, back = counters.live[-1] if counters.live else None, frame
        while back is not top and back is not None:
            if back in counters.delegating:
                waiting.append(back)
            back = back.f_back
        if back is top:
            break
        _end_call(counters)
    for going_on in reversed(waiting):
        _step(counters)
        _push(counters, going_on, True)


def _hooks(counters: Counters) -> dict[str, Callable[..., Any]]:
    """What a counted source calls, by name (`counted_source.py`)."""
    found = (*_frame_hooks(counters), *_yield_hooks(counters), *_item_hooks(counters))
    counters.held.know(*found)
    by_name = {hook.__name__: hook for hook in found}
    return {f"@{name}": by_name[name] for name in HOOKS.split()}


def _frame_hooks(counters: Counters) -> Iterable[Callable[..., Any]]:
    begun: set[int] = set()

    def line() -> bool:
        _step(counters)
        _look_at_frame(counters, _top(counters, _getframe(1)))
        return True

    def again(number: int) -> bool:
        if number in begun:
            _step(counters)
        begun.add(number)
        return True

    def enter(generator: bool) -> None:
        _begin_call(counters, _getframe(1), generator)

    def leave() -> None:
        frame = _getframe(1)
        if frame in reversed(counters.live):
            _look_at_frame(counters, _top(counters, frame))
            _end_call(counters)
        else:  # a generator ends while it waits
            _step(counters)

    def returned(entered: None, value: Any) -> Any:
        _look_at_frame(counters, _top(counters, _getframe(1)))
        _end_call(counters)
        return value

    return line, again, enter, leave, returned


def _yield_hooks(counters: Counters) -> Iterable[Callable[..., Any]]:
    def paused(value: Any) -> Any:
        frame = _top(counters, _getframe(1))
        _look_at_frame(counters, frame)
        _end_call(counters)
        # those that hand its items on wait too
        while counters.live and counters.live[-1] is frame.f_back and counters.live[-1] in counters.delegating:
            frame = counters.live[-1]
            _end_call(counters)
        return value

    def resumed(value: Any) -> Any:
        _begin_call(counters, _getframe(1), True)
        return value

    def delegates(items: Any) -> Any:
        counters.delegating.add(_getframe(1))
        return map(_element_hook(counters), items) if type(items) in _ITERABLES else items

    def delegated(value: Any) -> Any:
        _top(counters, _getframe(1))
        return value

    return paused, resumed, delegates, delegated


def _element_hook(counters: Counters) -> Callable[[Any], Any]:
    def element(value: Any) -> Any:
        _step(counters)
        return value

    return element


def _item_hooks(counters: Counters) -> Iterable[Callable[..., Any]]:
    element = _element_hook(counters)

    def items(values: Any, assigns: bool) -> Any:
        counters.comprehensions += 1
        counted = more(values, assigns)
        if counted is not values:
            _step(counters)
        return counted

    def more(values: Any, assigns: bool) -> Any:
        return map(element, values) if assigns or counters.comprehensions > counters.free else values

    def made(value: Any) -> Any:
        _note(counters, counters.total + len(value))
        return value

    def tail(values: Any) -> Any:
        return chain(iter(values), filter(last, (None,)))

    def last(value: None) -> bool:
        _step(counters)
        return False

    return items, more, element, made, tail


# names of what changes a container: a comprehension that calls one could be a loop that keeps no items
_CHANGES = """
    add append appendleft clear discard extend extendleft insert pop popitem popleft remove reverse rotate send
    setdefault sort subtract update __setitem__ __iadd__ setitem delitem iadd iconcat heapify heappop heappush
    heappushpop heapreplace insort insort_left insort_right ior iand isub ixor imul move_to_end _count_elements
    _heapreplace_max _heappop_max _heapify_max
"""


def compiled(source: str) -> CodeType:
    """The code that counts, of a program that compiles."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPER * limit)  # a tree may be as deep as its text was
    try:
        return compile(counted(source, FILE), FILE, "exec", dont_inherit=True)
    except SyntaxError:  # the program's own blocks are all that may be nested
        return compile(counted(source, FILE, says_end=False), FILE, "exec", dont_inherit=True)
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


# builtins with a state: streams, and the addresses of what is there
_STATEFUL = frozenset({"exit", "quit", "input", "print", "open", "id"})
_STATELESS = frozenset({"_functools", "math", "_operator", "_heapq", "_bisect"})
_MARKS = frozenset(opmap[name] for name in ("IMPORT_NAME", "STORE_ATTR", "DELETE_ATTR", "PUSH_EXC_INFO"))


def leaves_nothing(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Whether a program that passes `guard.check_program`, loaded anew, can't tell that it ran in this process before.

    All that it can change is its own module: it reaches no other one, sets no attributes, uses nothing that has a
    state, and catches no error, as of memory that its first run holds. `namespace`: what the prelude has left.
    """
    given = [value for name, value in namespace.items() if name[:2] != "__"]
    return all(type(value) is BuiltinFunctionType and value.__module__ in _STATELESS for value in given) and all(
        _STATEFUL.isdisjoint(part.co_names) and _MARKS.isdisjoint(part.co_code[::2]) for part in _parts(code)
    )


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _parts(constant)
