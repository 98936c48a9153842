"""Values of objects that are no exact builtins: `ListNode` and `TreeNode`, and what a subclass's value holds.

Nodes are made of the class that the program itself uses. A subclass's value, a numpy scalar or array, a `Fraction`,
`Decimal`, `UserList` or `SortedList` is read by its base's methods, never its own: it equals in plain Python what the
base holds, and one whose methods lie is compared by what it holds.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain as _joined
from types import BuiltinFunctionType
from typing import Any

NodeMaker = Callable[[str, list[Any]], Any]
"""(kind, values) -> a `ListNode` chain, a `TreeNode` tree, or the `builtin` of that name."""
_BUILTINS = {name: it for name, it in vars(builtins).items() if type(it) in (type, BuiltinFunctionType)}
BUILTIN_NAMES = {id(it): name for name, it in _BUILTINS.items()}
"""By identity, which no program can feign; as they were before any ran."""
_EXCEPTIONS = {it.__name__: it for it in _BUILTINS.values() if isinstance(it, type) and issubclass(it, Exception)}
del _EXCEPTIONS["ExceptionGroup"]  # holds others


class ListNode:
    """For programs whose prelude has none."""

    def __init__(self, val: Any = 0, next: Any = None) -> None:
        self.val = val
        self.next = next


class TreeNode:
    """For programs whose prelude has none."""

    def __init__(self, val: Any = 0, left: Any = None, right: Any = None) -> None:
        self.val = val
        self.left = left
        self.right = right


def maker(namespace: dict[str, Any], builtin: Callable[[str], Any] = _BUILTINS.__getitem__) -> NodeMaker:
    """Makes chains and trees of the classes in `namespace`, looked up when needed: a candidate may bring its own.

    `builtin`: what stands for a builtin's name. Where a candidate's values arrive it is nothing that can be called.
    """

    def make(kind: str, values: list[Any]) -> Any:
        if kind == "builtin":
            return builtin(values[0])
        if kind == "ListNode":
            return chain(namespace.get(kind, ListNode), values)
        return tree(namespace.get(kind, TreeNode), values)

    return make


def chain(kind: Any, values: list[Any]) -> Any:
    head = None
    for value in reversed(values):
        node = kind(value)
        node.next = head
        head = node
    return head


def tree(kind: Any, levels: list[Any]) -> Any:
    """A tree from its levels: `(value,)` a node, None a missing child."""
    if not levels or levels[0] is None:
        return None
    items = iter(levels)
    root = kind(next(items)[0])
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for side in ("left", "right"):
            item = next(items, None)
            if item is None:
                continue
            if type(item) is not tuple or len(item) != 1:
                raise ValueError("malformed data: a tree's level")
            child = kind(item[0])
            setattr(node, side, child)
            queue.append(child)
    return root


def chain_values(node: Any) -> list[Any] | None:
    """Values of a linked list; None where it has a cycle."""
    values, seen = [], set()
    while node is not None:
        if id(node) in seen:
            return None
        seen.add(id(node))
        values.append(node.val)
        node = node.next
    return values


def tree_levels(root: Any) -> list[Any] | None:
    """A tree's levels, as `tree` takes them; None where it has a cycle."""
    values: list[Any] = []
    queue, seen = deque([root]), set()
    while queue:
        node = queue.popleft()
        if node is None:
            values.append(None)
            continue
        if id(node) in seen:
            return None
        seen.add(id(node))
        values.append((node.val,))
        queue.append(node.left)
        queue.append(node.right)
    return values


_MRO, _NAME = (vars(type)[name].__get__ for name in ("__mro__", "__name__"))
_WHOLE = slice(None)
# slots of a `Fraction`
_PARTS = ("_numerator", "_denominator")


def _rational(numerator: int, denominator: int) -> Any:
    """The int or float that equals it; None if there is none."""
    if type(numerator) is not int or type(denominator) is not int:
        return None
    if denominator == 1:
        return numerator
    try:
        nearest = numerator / denominator
    except OverflowError:
        return None
    return nearest if nearest.as_integer_ratio() == (numerator, denominator) else None


_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__index__),
    (float, float.__float__),
    (str, str.__str__),
    (list, lambda value: list.__getitem__(value, _WHOLE)),
    (tuple, lambda value: tuple.__getitem__(value, _WHOLE)),
    (dict, lambda value: dict(dict.items(value))),
    (set, lambda value: set(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (bytes, lambda value: bytes.__getitem__(value, _WHOLE)),
    (bytearray, lambda value: bytes(bytearray.__getitem__(value, _WHOLE))),
    (complex, complex.__pos__),
)
_LIBRARY: tuple[tuple[str, str, Callable[[Any, Any], Any]], ...] = (
    ("numpy", "generic", lambda base, value: base.item(value)),
    ("numpy", "ndarray", lambda base, value: base.tolist(value)),
    ("fractions", "Fraction", lambda base, value: _rational(*(vars(base)[part].__get__(value) for part in _PARTS))),
    ("decimal", "Decimal", lambda base, value: _rational(*base.as_integer_ratio(value))),
    ("collections", "UserList", lambda base, value: object.__getattribute__(value, "data")),
    ("collections", "UserDict", lambda base, value: object.__getattribute__(value, "data")),
    (
        "sortedcontainers",
        "SortedList",
        lambda base, value: [*_joined(*object.__getattribute__(value, "_lists"))],
    ),
)
_MODULES = sys.modules


def name_of(kind: type) -> str:
    """The class's name, without asking its metaclass."""
    return str(_NAME(kind))


def exception_name(error: BaseException) -> str:
    """The builtin exception that `error` is, or inherits from first; empty if it is none that a check may expect."""
    return next((_NAME(kind) for kind in _MRO(type(error)) if _EXCEPTIONS.get(_NAME(kind)) is kind), "")


def exception(name: str, text: str) -> Exception:
    """The builtin exception of that name."""
    kind = _EXCEPTIONS.get(name, Exception)
    error: Exception = kind.__new__(kind, text)
    with suppress(TypeError):  # `UnicodeDecodeError` takes more than a text
        error.__init__(text)  # type: ignore[misc]
    return error


def base_value(value: Any) -> Any:
    """The exact builtin that `value` holds; None if its class has no such base."""
    bases = _MRO(type(value))
    for base, read in _BASES:
        if any(kind is base for kind in bases):
            return read(value)
    for module, name, read_by in _LIBRARY:
        known = getattr(_MODULES.get(module), name, None)
        if known is not None and any(kind is known for kind in bases):
            return read_by(known, value)
    return None
