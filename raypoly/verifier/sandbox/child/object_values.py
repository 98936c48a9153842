"""Values of objects that are no exact builtins, by kind and content: `("Fraction", (1, 3))`. The content is plain data.

`held` reads a value by the methods of its base, never its own: one whose methods lie is compared by what it holds.
`library` makes values of the library anew, `maker` those that need the program's classes too: nodes are made of the
class that the program itself uses. Where only equality counts, `held` drops what a value has beyond that of its base: a
namedtuple is its tuple, an `IntEnum` its int, numpy's array its list. For a check (`typed`), which may ask for more, a
value keeps its fields, and is of no exact builtin type.
"""

from __future__ import annotations

import builtins
import datetime
import itertools
import sys
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from types import BuiltinFunctionType, GeneratorType
from typing import Any

Maker = Callable[[str, Any], Any]
"""(kind, content) -> the value."""
_BUILTINS = {name: it for name, it in vars(builtins).items() if type(it) in (type, BuiltinFunctionType)}
BUILTIN_NAMES = {id(it): name for name, it in _BUILTINS.items()}
"""By identity, which no program can feign; as they were before any ran."""
_EXCEPTIONS = {it.__name__: it for it in _BUILTINS.values() if isinstance(it, type) and issubclass(it, Exception)}
del _EXCEPTIONS["ExceptionGroup"]  # holds others
CANDIDATE = "__candidate__"  # the module of a prelude, its check and its program
ENDLESS = "endless "  # before the name of an iterator whose first items alone are handed over
_MOST_NODES = 1 << 21


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
    # nodes made when asked for would be gone, and their ids used again: all are kept
    values: list[Any] = []
    seen: dict[int, Any] = {}
    while node is not None:
        if id(node) in seen or len(seen) == _MOST_NODES:
            return None
        seen[id(node)] = node
        values.append(node.val)
        node = node.next
    return values


def tree_levels(root: Any) -> list[Any] | None:
    """A tree's levels, as `tree` takes them; None where it has a cycle."""
    values: list[Any] = []
    queue = deque([root])
    seen: dict[int, Any] = {}
    while queue:
        node = queue.popleft()
        if node is None:
            values.append(None)
            continue
        if id(node) in seen or len(seen) == _MOST_NODES:
            return None
        seen[id(node)] = node
        values.append((node.val,))
        queue.append(node.left)
        queue.append(node.right)
    return values


_MRO, _NAME, _DICT = (vars(type)[name].__get__ for name in ("__mro__", "__name__", "__dict__"))
_WHOLE = slice(None)
_MODULES = sys.modules
_FACTORIES = {kind.__name__: kind for kind in (int, float, bool, str, list, tuple, dict, set)}


def _fields(kind: type, names: str) -> Callable[[Any], tuple[Any, ...]]:
    read = [next(vars(base)[name] for base in kind.__mro__ if name in vars(base)).__get__ for name in names.split()]
    return lambda value: tuple(get(value) for get in read)


_DATE, _CLOCK, _SPAN = "year month day", "hour minute second microsecond fold", "days seconds microseconds"
_BASES: dict[int, Callable[[Any], Any]] = {
    id(int): int.__index__,
    id(float): float.__float__,
    id(str): str.__str__,
    id(list): lambda value: list.__getitem__(value, _WHOLE),
    id(tuple): lambda value: tuple.__getitem__(value, _WHOLE),
    id(dict): lambda value: dict(dict.items(value)),
    id(set): lambda value: set(set.__iter__(value)),
    id(frozenset): lambda value: frozenset(frozenset.__iter__(value)),
    id(bytes): lambda value: bytes.__getitem__(value, _WHOLE),
    id(bytearray): lambda value: bytes(bytearray.__getitem__(value, _WHOLE)),
    id(complex): complex.__pos__,
}
_read_moment, _read_time = _fields(datetime.datetime, f"{_DATE} {_CLOCK}"), _fields(datetime.time, _CLOCK)
_maxlen, _factory = vars(deque)["maxlen"].__get__, vars(defaultdict)["default_factory"].__get__
_MEMBER = ("_name_", "_value_")
_LIBRARY: dict[int, tuple[str, Callable[[Any], Any]]] = {
    id(deque): ("deque", lambda value: (list(deque.__iter__(value)), _maxlen(value))),
    id(range): ("range", _fields(range, "start stop step")),
    id(OrderedDict): ("OrderedDict", lambda value: dict(OrderedDict.items(value))),
    id(Counter): ("Counter", lambda value: dict(dict.items(value))),
    id(defaultdict): (
        "defaultdict",
        lambda value: (dict(dict.items(value)), BUILTIN_NAMES.get(id(_factory(value)), "")),
    ),
    id(Fraction): ("Fraction", _fields(Fraction, "_numerator _denominator")),
    id(Decimal): ("Decimal", Decimal.__str__),
    id(datetime.datetime): (
        "datetime",
        lambda value: (*_read_moment(value), datetime.datetime.utcoffset(value)),
    ),
    id(datetime.date): ("date", _fields(datetime.date, _DATE)),
    id(datetime.time): (
        "time",
        lambda value: (*_read_time(value), datetime.time.utcoffset(value)),
    ),
    id(datetime.timedelta): ("timedelta", _fields(datetime.timedelta, _SPAN)),
    id(type({}.keys())): ("dict_keys", dict.fromkeys),
    id(type({}.values())): ("dict_values", list),
    id(type({}.items())): ("dict_items", dict),
    id(type(OrderedDict().keys())): ("dict_keys", dict.fromkeys),
    id(type(OrderedDict().values())): ("dict_values", list),
    id(type(OrderedDict().items())): ("dict_items", dict),
    id(Enum): ("Enum", lambda value: (name_of(type(value)), *(object.__getattribute__(value, n) for n in _MEMBER))),
}
# what holds a builtin beside others, and is compared as that: module, class, attribute
_WRAPPERS = (
    ("collections", "UserList", "data"),
    ("collections", "UserDict", "data"),
    ("sortedcontainers", "SortedList", "_lists"),
)
_WIDTHS = ("b1", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "c8", "i8", "u8", "f8", "c16")
_MOST_FIELDS = 255  # making the class takes time that grows with them
_NUMBERS = frozenset(f"{order}{kind}" for order in "<|" for kind in _WIDTHS)
_ITERATORS = frozenset(
    map(
        id,
        (
            *(map, filter, zip, enumerate, reversed, GeneratorType),
            *map(type, (iter([]), iter(()), iter(""), iter(range(0)), iter(set()), iter(int, 0), reversed([]))),
            *map(type, (iter({}), iter({}.values()), iter({}.items()))),
            *(kind for kind in vars(itertools).values() if type(kind) is type),
        ),
    )
)


def is_iterator(value: Any) -> bool:
    return id(type(value)) in _ITERATORS


def name_of(kind: type) -> str:
    """The class's name, without asking its metaclass."""
    return str(_NAME(kind))


def exception_name(error: BaseException) -> str:
    """The builtin exception that `error` is, or inherits from first; empty if it is none that a check may expect."""
    return next((_NAME(kind) for kind in _MRO(type(error)) if _EXCEPTIONS.get(_NAME(kind)) is kind), "")


def exception(name: str, text: str) -> Exception:
    kind = _EXCEPTIONS.get(name, Exception)
    error: Exception = kind.__new__(kind, text)
    with suppress(TypeError):  # `UnicodeDecodeError` takes more than a text
        error.__init__(text)  # type: ignore[misc]
    return error


def held(value: Any, typed: bool) -> tuple[str, Any] | None:
    """Kind and content; no kind where the content says all that counts, None for an object that holds no value."""
    kind = type(value)
    bases = _MRO(kind)
    if (found := _numpy_value(value, bases, typed)) is not None:
        return found
    for base in bases:
        if (known := _LIBRARY.get(id(base))) is not None:
            return known[0], known[1](value)
        if (read := _BASES.get(id(base))) is not None:
            content = read(value)
            return _typed_builtin(bases, content) if typed else ("", content)
    for module, name, attribute in _WRAPPERS:
        known_class = getattr(_MODULES.get(module), name, None)
        if known_class is not None and any(base is known_class for base in bases):
            content = object.__getattribute__(value, attribute)
            content = [*itertools.chain(*content)] if name == "SortedList" else content
            return (name if typed else ""), content
    return None


def loses_type(value: Any) -> bool:
    """Whether something in it has more than what counts in a comparison."""
    kind = type(value)
    if kind is dict:
        return any(map(loses_type, (*value, *value.values())))
    if kind in (list, tuple, set, frozenset):
        return any(map(loses_type, value))
    if value is None or kind is bool or id(kind) in _BASES or is_iterator(value):
        return False
    if kind.__module__ == CANDIDATE:
        return True
    found = held(value, typed=True)
    return found is not None and (found[0] in _TYPED or loses_type(found[1]))


def _typed_builtin(bases: tuple[type, ...], content: Any) -> tuple[str, Any]:
    name = name_of(bases[0])
    if type(content) is tuple:
        for base in bases:
            fields = _DICT(base).get("_fields")
            if (
                type(fields) is tuple
                and len(fields) == len(content) <= _MOST_FIELDS
                and all(type(field) is str for field in fields)
            ):
                return "namedtuple", (name, fields, content)
    return "subclass", (name, content)


def _numpy_value(value: Any, bases: tuple[type, ...], typed: bool) -> tuple[str, Any] | None:
    numpy = _MODULES.get("numpy")
    if numpy is None:
        return None
    for name, read in (("generic", "item"), ("ndarray", "tolist")):
        known = getattr(numpy, name, None)
        if known is not None and any(base is known for base in bases):
            content = getattr(known, read)(value)
            if typed and (dtype := str(known.dtype.__get__(value).str)) in _NUMBERS:
                shape = None if name == "generic" else known.shape.__get__(value)
                return "numpy", (dtype, shape, content)
            return "", content
    return None


def _exact(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"no {kind.__name__}")
    return value


def _integers(content: Any) -> list[int]:
    # a tuple: the numbers of a hostile range have no end
    return [_exact(int, number) for number in _exact(tuple, content)]


def _fraction(content: Any) -> Any:
    numerator, denominator = _integers(content)
    if denominator < 1:
        raise ValueError("no fraction")
    made: Any = Fraction()  # reducing it could take minutes, and it is reduced unless its sender lies
    made._numerator, made._denominator = numerator, denominator
    return made


def _decimal(content: Any) -> Decimal:
    made = Decimal(_exact(str, content))
    if made.is_snan():  # raises whatever it is compared with
        raise ValueError("a signalling NaN")
    return made


def _of_time(kind: Callable[..., Any]) -> Callable[[Any], Any]:
    def make(content: Any) -> Any:
        *numbers, fold, offset = _exact(tuple, content)
        zone = None if offset is None else datetime.timezone(offset)
        return kind(*_integers(tuple(numbers)), tzinfo=zone, fold=fold)

    return make


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "deque": lambda content: deque(_exact(list, content[0]), content[1]),
    "range": lambda content: range(*_integers(content)),
    "OrderedDict": lambda content: OrderedDict(_exact(dict, content)),
    "Counter": lambda content: Counter(_exact(dict, content)),
    "defaultdict": lambda content: defaultdict(_FACTORIES.get(content[1]), _exact(dict, content[0])),
    "Fraction": _fraction,
    "Decimal": _decimal,
    "datetime": _of_time(datetime.datetime),
    "date": lambda content: datetime.date(*_integers(content)),
    "time": _of_time(datetime.time),
    "timedelta": lambda content: datetime.timedelta(*_integers(content)),
    "dict_keys": lambda content: _exact(dict, content).keys(),
    "dict_values": lambda content: dict(enumerate(_exact(list, content))).values(),
    "dict_items": lambda content: _exact(dict, content).items(),
}


def library(kind: str, content: Any) -> Any:
    """A value of the standard library. Raises `KeyError` for another kind, or what content that is none raises."""
    return _MAKERS[kind](content)


def maker(namespace: dict[str, Any], builtin: Callable[[str], Any] = _BUILTINS.__getitem__) -> Maker:
    """Makes values of every kind; nodes of the classes in `namespace`, looked up when needed.

    `builtin`: what stands for a builtin's name. Where a candidate's values arrive it is nothing that can be called.
    """

    def make(kind: str, content: Any) -> Any:
        if kind in _MAKERS:
            return _MAKERS[kind](content)
        if kind == "ListNode":
            return chain(namespace.get(kind, ListNode), content)
        if kind == "TreeNode":
            return tree(namespace.get(kind, TreeNode), content)
        if kind == "builtin":
            return builtin(content)
        if kind == "iterator":
            name, items = content
            if name.startswith(ENDLESS):
                return _first(items)
            return (item for item in items) if name == "generator" else iter(items)
        if kind == "Enum":
            return _member(namespace, *content)
        return _TYPED[kind](content)

    return make


def _first(items: Sequence[Any]) -> Iterator[Any]:
    yield from items
    raise ValueError(f"only the first {len(items)} items of a very long iterator are here")


def _member(namespace: dict[str, Any], name: str, member: str, value: Any) -> Any:
    known = namespace.get(name)
    if isinstance(known, type) and issubclass(known, Enum) and member in known.__members__:
        return known[member]
    made: Any = Enum(name, {member: value})  # type: ignore[misc]
    return made[member]


@lru_cache(256)
def _class(name: str, base: Hashable) -> Any:
    if id(base) not in _BASES:
        raise ValueError("no builtin")
    return type(name, (base,), {})  # type: ignore[arg-type]


@lru_cache(256)
def _record(name: str, fields: tuple[str, ...]) -> Any:
    if len(fields) > _MOST_FIELDS:
        raise ValueError("too many fields")
    make: Any = namedtuple
    return make(name, fields)


def _array(content: Any) -> Any:
    import numpy  # costs more than a whole check, and few need it

    dtype, shape, values = content
    made = numpy.array(values, dtype)
    return made[()] if shape is None else made.reshape(shape)


_TYPED: dict[str, Callable[[Any], Any]] = {
    "subclass": lambda content: _class(content[0], type(content[1]))(content[1]),  # type: ignore[arg-type]
    "namedtuple": lambda content: _record(content[0], content[1])(*content[2]),
    "numpy": _array,
    "UserList": lambda content: UserList(_exact(list, content)),
    "UserDict": lambda content: UserDict(_exact(dict, content)),
    "SortedList": lambda content: __import__("sortedcontainers").SortedList(_exact(list, content)),
}
