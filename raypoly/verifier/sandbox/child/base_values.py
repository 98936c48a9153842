"""What a value of a subclass holds, read by the methods of its builtin base and never by its own.

An `IntEnum`, a namedtuple, a `str` enum or a subclass of `list` equals in plain Python what its base holds, and so do
numpy's scalars and arrays, a `Fraction`, a `Decimal`, a `UserList` and a `SortedList`. A value whose methods lie is
compared by what it holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

_MRO, _NAME = (vars(type)[name].__get__ for name in ("__mro__", "__name__"))
_WHOLE = slice(None)
_PARTS = ("_numerator", "_denominator")
"""The slots of a `Fraction`."""


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
    ("sortedcontainers", "SortedList", lambda base, value: [*chain(*object.__getattribute__(value, "_lists"))]),
)
_MODULES = sys.modules


def name_of(kind: type) -> str:
    """The class's name, without asking its metaclass."""
    return str(_NAME(kind))


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
