"""Run one program: load its code once, then make each test's call. The parent compares results.

Messages in: the code, then each test when the last is answered, `(args, kwargs, budget, number)`: a program knows no
input while another test's clock runs. `number`: of a returned function that a check calls, or -1; None where no check
asks. Messages out, each behind the nonce: `("ready",)` or why it can't be loaded;
for each test `("ok", result, args, counts)`, `("raised", kind, text, builtin kind)` or `("memory",)`; or last words
about a budget or tampering. An empty message ends the tests of a counted program; the question after it is answered by
the evidence's module, or by `("elsewhere",)` where the program could tell that it ran before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any

from raypoly.verifier.sandbox.child import budget, frames, guard, object_values, plain_data

Report = Callable[..., None]
OPERATIONS = "<operations>"
"""Entry point of a problem whose tests are lists of operations."""
OBSERVERS: list[Callable[..., None]] = []
"""The evidence module's, where there is one: what runs a program again whose tests are over."""
_IMMUTABLE = frozenset({int, str, bool, float, type(None)})
_FUNCTIONS = frozenset(map(id, (FunctionType, MethodType, partial, type(lru_cache(len)))))


class _Kept:
    """By number: functions that a check may call, and stand-ins for objects of the check."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.functions: list[Any] = []
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._classes: dict[str, type] = {}
        self.sent = set[int]()
        self._namespace, self._make = namespace, object_values.maker(namespace)

    def keep(self, value: Any) -> tuple[str, Any] | None:
        if (number := self._numbers.get(id(value))) is not None:
            # once a message: an object may hold itself
            attributes = {} if number in self.sent else dict(object.__getattribute__(value, "__dict__"))
            self.sent.add(number)
            return "object", (number, object_values.name_of(type(value)), attributes)
        if id(type(value)) not in _FUNCTIONS:
            return None
        self.functions.append(value)
        return "function", len(self.functions) - 1

    def make(self, kind: str, content: Any) -> Any:
        if kind == "function":
            return self.functions[content]
        if kind != "object":
            return self._make(kind, content)
        number, name, attributes = content
        if number not in self._objects:
            own = self._namespace.get(name)
            made: Any = object.__new__(
                own if isinstance(own, type) else self._classes.setdefault(name, type(name, (), {}))
            )
            self._objects[number], self._numbers[id(made)] = made, number
        vars(self._objects[number]).update(attributes)
        return self._objects[number]


def serve(channel: int, namespace: dict[str, Any], nonce: bytes, entry_point: str, counted: bool) -> None:
    """`counted`: some test has a budget."""

    def report(*message: object) -> None:
        frames.send(channel, nonce + _encoded(message, kept))

    counters, kept, depth = None, _Kept(namespace), sys.getrecursionlimit()
    code = frames.receive(channel).decode("utf-8", "surrogatepass")
    try:
        written = compile(code, budget.FILE, "exec", dont_inherit=True)
        compiled = budget.compiled(code) if counted else written
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        report("syntax", type(error).__name__, text_of(error))
        return
    program, prelude = FunctionType(compiled, namespace), dict(namespace)
    namespace.pop(class_of(entry_point), None)  # a prelude's `add` is no answer
    given = namespace.get(bare_name(entry_point))
    if counted:
        name = guard.check_program(written, code)
        if name is not None:
            guard.tampered(report, f"the name {name} can't be used in a budgeted test")
        counters = budget.install(report, namespace, written, compiled)
    try:
        program()
        function = entry(namespace, entry_point, given)
        if counters is not None:
            budget.loaded(counters)
    except BaseException as error:  # noqa: BLE001 - whatever a candidate raises is its verdict
        _report_error(report, error)
        return
    report("ready")
    while test := frames.receive(channel):
        _answer(report, function, kept, counters, test)
    question = plain_data.unpack(frames.receive(channel))
    if counters is None or not counters.closed:
        report("elsewhere")
    else:
        sys.setrecursionlimit(depth)  # counting took some
        OBSERVERS[0](report, prelude, *question)


def _answer(report: Report, function: Any, kept: _Kept, counters: budget.Counters | None, test: bytes) -> None:
    args, kwargs, limits, number = plain_data.unpack(test, kept.make)
    try:
        if counters is not None:
            budget.begin(counters, limits, (args, kwargs))
        result = (function if number is None or number < 0 else kept.functions[number])(*args, **kwargs)
        counts = None if counters is None else budget.counts(counters)
        report("ok", *((result, None) if number is None else _seen_by_check(result, args, kwargs)), counts)
    except budget.Over:
        return
    except BaseException as error:  # noqa: BLE001 - whatever a candidate raises is its verdict
        _report_error(report, error)


def _seen_by_check(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    # a check may ask whether the result is the very argument
    place = next((place for place, given in enumerate((*args, *kwargs.values())) if given is result), None)
    if place is not None and type(result) not in _IMMUTABLE:
        result = plain_data.Typed("argument", place)
    return result, (args, kwargs)


def entry(namespace: dict[str, Any], entry_point: str, given: Any = None) -> Any:
    """What `entry_point` names: `f`, `Solution().twoSum` (one instance for all tests).

    Where the program has no such class, its function of the method's name: data sets' graders take one. `given`: what
    the prelude has by that name, which is no answer.
    """
    if entry_point == OPERATIONS:
        return _operations_player(namespace)
    if class_of(entry_point) not in namespace and (bare := namespace.get(bare_name(entry_point))) is not given:
        return bare
    value: Any = None
    for position, part in enumerate(entry_point.split(".")):
        name = part.removesuffix("()")
        value = _defined(namespace, name) if position == 0 else getattr(value, name)
        if part.endswith("()"):
            value = value()
    return value


def class_of(entry_point: str) -> str:
    return entry_point.partition(".")[0].removesuffix("()")


def bare_name(entry_point: str) -> str:
    """`twoSum` of `Solution().twoSum`; empty for a function."""
    return entry_point.partition(".")[2]


def _defined(namespace: dict[str, Any], name: str) -> Any:
    if name not in namespace:
        raise NameError(f"the program does not define {name}")
    return namespace[name]


def _operations_player(namespace: dict[str, Any]) -> Callable[[list[str], list[list[Any]]], list[Any]]:
    """Makes an object and calls its methods in turn: `(["LRUCache", "put"], [[2], [1, 1]])` gives `[None, None]`."""
    make = object_values.maker(namespace)

    def play(operations: list[str], arguments: list[list[Any]]) -> list[Any]:
        made = _defined(namespace, operations[0])(*arguments[0])
        results: list[Any] = [None]
        for name, args in zip(operations[1:], arguments[1:], strict=True):
            result = getattr(made, name)(*args)
            # a copy: what is returned may be changed by the operations that follow
            results.append(result if type(result) in _IMMUTABLE else plain_data.decode(plain_data.encode(result), make))
        return results

    return play


def _encoded(message: tuple[object, ...], kept: _Kept) -> bytes:
    # a check, which sees the arguments too, may ask for more than what is equal
    typed = message[0] == "ok" and message[2] is not None
    kept.sent.clear()
    try:
        return plain_data.encode(message, typed=typed and kept.keep)
    except plain_data.TooLarge as error:
        return plain_data.encode(("ok", plain_data.Opaque(f"a value of {error}"), None, None))


def _report_error(report: Report, error: BaseException) -> None:
    if isinstance(error, MemoryError):
        report("memory")
    else:
        report("raised", type(error).__name__[:100], text_of(error), object_values.exception_name(error))


def text_of(error: BaseException) -> str:
    """The message where it is plain text: a candidate's own `__str__` is never called."""
    args = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    plain = [arg for arg in args[:2] if type(arg) is str] or [arg for arg in args[:1] if type(arg) in (int, float)]
    text = plain[0] if plain else ""
    if type(error) is SyntaxError:
        text = error.msg if error.lineno is None else f"{error.msg} (line {error.lineno})"
    return str(text)[:200]
