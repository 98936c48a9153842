"""How much a program holds, found without running any of its code.

Counts one: each item of a container; each 64 bits of an integer but the first; each other object, and each of its
references beyond the eighth; each character of text or bytes but the first, unless it is part of a text among the
test's arguments. All that the program can reach counts once, without its constants, its code and the library.
"""

from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import operator
import sys
from collections.abc import Iterable, Iterator
from gc import get_referents
from sys import _getframe
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType
from typing import Any

# A number for each object; unlike `id`, it raises no audit event
_identity: Any = object.__hash__
_TEXTS = (str, bytes, bytearray)
_SIZED = (list, tuple, dict, set, frozenset, collections.deque, *_TEXTS)
_FREE_REFERENCES = 8
_WORD = 1 << 63
_LONG_ITERATOR = type(iter(range(_WORD)))
_TOUCHED_A_FRAME = 8
_LOCALS = type((lambda: _getframe().f_locals)())
FrameLocals = tuple[int, list[Any]]
"""Identity of a frame's dictionary of locals, and those that could hold something."""
_NAMES = ("__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__annotations__", "__main__")


@functools.cache
def library() -> dict[int, Any]:
    """Modules, what they hold, classes, and names that Python writes by itself, by identity.

    A template calls this after its prelude: its children have the answer then.
    """
    found = dict(_by_identity(_NAMES))
    for module in [*sys.modules.values(), bisect, heapq, itertools, operator]:
        found.update(_by_identity((module, vars(module), *vars(module).values())))
    classes: list[type] = [object]
    while classes:
        found.update(_by_identity(classes))
        below: list[Any] = list(itertools.chain.from_iterable(map(type.__subclasses__, classes)))
        classes = [kind for kind in below if _identity(kind) not in found]
    return found


def _by_identity(values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    return ((_identity(value), value) for value in values)


class Holdings:
    def __init__(self, namespace: dict[str, Any], lasting: bool = False) -> None:
        """`lasting`: the program sets no attribute, so a function holds later what it holds now."""
        self._namespace, self._lasting = namespace, lasting
        self._library = library()
        self._known: set[int] = set()
        # what is known or was seen in locals: the last reference must not be dropped in a look, where a finalizer
        # would run uncounted
        self._kept: dict[int, Any] = {}
        # own lengths of the parts of the module's classes and functions
        self._definitions: dict[int, int] = {}
        # texts among the test's arguments
        self._given: list[Any] = []
        # what the namespace held at the last look
        self._names: list[Any] = []
        # what of it could hold something
        self._open: list[Any] = []
        # objects behind the rest, which hold nothing for good
        self._settled = 0
        self.know(namespace, *namespace.values())

    def know(self, *values: Any) -> None:
        """Never count these, nor what only they hold."""
        self._kept.update(_by_identity(values))
        self._known.update(map(_identity, values))

    def names(self) -> Iterable[str]:
        return list(self._namespace)

    def loaded(self) -> None:
        """The module's code has run: what defines its classes and functions is no holding."""
        for value in self._namespace.values():
            kind = type(value)
            if _identity(value) not in self._library and (issubclass(kind, type) or kind is FunctionType):
                for part in get_referents(value):
                    if type(part) is dict or type(part) is tuple:
                        self._definitions[_identity(part)] = len(part)

    def begin(self, arguments: Any) -> None:
        """A test begins: cutting up a text that was given is no way to hold more."""
        self._given = list(_texts(arguments))

    def know_code(self, code: CodeType) -> None:
        """A program's constants and names are no holdings."""
        self.know(code.co_name, code.co_qualname, *code.co_names, *code.co_varnames, *code.co_freevars)
        for constant in code.co_consts:
            self.know(constant)
            if type(constant) is CodeType:
                self.know_code(constant)

    def locals_of(self, frame: FrameType) -> FrameLocals:
        """A frame's locals without common numbers, None and booleans."""
        found: list[Any] = []
        snapshot: Any = frame.f_locals
        if type(snapshot) is not dict and type(snapshot) is not _LOCALS:  # a class's, of the program's making
            return 0, [snapshot]
        for value in snapshot.values():
            kind = type(value)
            if (kind is int and -_WORD < value < _WORD) or kind is bool or kind is float or value is None:
                continue
            self._kept[_identity(value)] = value
            found.append(value)
        return _identity(snapshot), found

    def _look_at_names(self) -> None:
        """Find what of the namespace could hold something, if it changed since the last look."""
        values = list(self._namespace.values())
        if len(values) == len(self._names) and all(map(operator.is_, values, self._names)):
            return
        held, settled = list[Any](), 0
        for value in values:
            key = _identity(value)
            if key in self._known or key in self._library:
                settled += 1
            elif self._lasting and type(value) is FunctionType and all(map(self._holds_nothing, get_referents(value))):
                settled += 1 + len(get_referents(value))
            else:
                held.append(value)
        # last, and the names after what they lead to: without room for a call this ends halfway
        self._open, self._settled = held, settled
        self._names = values

    def _holds_nothing(self, value: Any) -> bool:
        key = _identity(value)
        return value is None or type(value) is CodeType or key in self._known or key in self._library

    def count(self, frames: Iterable[FrameLocals]) -> tuple[int, int]:
        """(what the namespace and live frames hold, objects touched to find it)."""
        self._look_at_names()
        todo = list(self._open)
        snapshots = set()
        touched = self._settled
        for snapshot, values in frames:
            todo += values
            snapshots.add(snapshot)
            touched += _TOUCHED_A_FRAME
        seen: set[int] = set()
        held = 0
        while todo:
            value = todo.pop()
            touched += 1
            kind = type(value)
            if kind is int:
                held += int.bit_length(value) >> 6
                continue
            # `is` and never `==` or `isinstance`: those may run the program's own code
            if kind is float or kind is bool or value is None or kind is CodeType:
                continue
            key = _identity(value)
            # the dictionaries of locals are ours: reading `f_locals` made them
            if key in seen or key in snapshots or key in self._known or key in self._library:
                continue
            seen.add(key)
            base = str if kind is str else _base(kind)
            if base in _TEXTS:
                held += self._characters(base, value)
                if kind is str:
                    continue
            references = _references(kind, value)
            todo += references
            if base is object:
                held += (not _is_definition(kind)) + max(0, len(references) - _FREE_REFERENCES)
            elif base not in _TEXTS:
                held += base.__len__(value) - self._definitions.get(key, 0)
        return held, touched

    def _characters(self, base: Any, text: Any) -> int:
        size: int = base.__len__(text)
        if size < 2 or any(type(given) is base and base.__contains__(given, text) for given in self._given):
            return 0
        return size - 1

    def left(self) -> int:
        """A number that changes when the module's names lead to something else."""
        todo: list[Any] = [*self._namespace, *self._namespace.values()]
        seen: set[int] = set()
        found: list[Any] = []
        while todo:
            value = todo.pop()
            kind = type(value)
            if kind is int or kind is float or kind is str or kind is bool or kind is bytes or value is None:
                found.append(value)
                continue
            key = _identity(value)
            if key in seen or key in self._known or key in self._library:
                continue
            seen.add(key)
            base = _base(kind)
            references = _references(kind, value)
            todo += references
            found.append(key if base is object else bytes(value) if kind is bytearray else len(references))
        return hash(tuple(found))


def longest(frame: FrameLocals) -> int:
    """Length of a frame's longest container."""
    most = 0
    for value in frame[1]:
        kind = type(value)
        if kind is list or kind is dict or kind is set:  # a metaclass would be asked by `in`
            most = max(most, len(value))
    return most


def _base(kind: type) -> Any:
    # no metaclass is asked
    for known in _SIZED:
        if issubclass(kind, known):
            return known
    return object


def _is_definition(kind: type) -> bool:
    return kind is FunctionType or kind is BuiltinFunctionType or kind is CellType


def _references(kind: type, value: Any) -> list[Any]:
    if kind is _LONG_ITERATOR:
        return [value.__reduce__()[1][0]]
    return [value.start, value.stop, value.step] if kind is range else get_referents(value)


def _texts(value: Any) -> Iterator[Any]:
    if type(value) in _TEXTS:
        yield value
    elif type(value) is dict:
        yield from itertools.chain.from_iterable(map(_texts, itertools.chain.from_iterable(value.items())))
    elif type(value) in (list, tuple):
        yield from itertools.chain.from_iterable(map(_texts, value))
