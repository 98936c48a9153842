"""Plain data as bytes: arguments into a sandbox child, results out. Never pickle.

A value is a tag and its content. Builtins are written by value; values of the library, nodes and the like by a kind and
plain content (`object_values.py`), a builtin type or function by its name, which becomes itself in a candidate's
process alone; anything else becomes an `Opaque` that equals nothing. The decoder reads bytes that a hostile process
wrote: it is bounded in depth, memory (a small multiple of the bytes) and time (few keys whose hash an attacker can
choose), and raises `Malformed` for whatever it doesn't know.
"""

from __future__ import annotations

import marshal
from array import array
from collections import Counter, deque
from collections.abc import Callable
from itertools import accumulate
from struct import Struct
from struct import error as StructError
from typing import Any

from raypoly.verifier.sandbox.child import object_values
from raypoly.verifier.sandbox.child.object_values import Maker

MAX_BYTES = 16 << 20
_MAX_DEPTH = 200
# keys whose hashes the sender can choose: more could be made to collide for hours
_MAX_CHOSEN_KEYS = 20_000
# sets, dicts and deques: the smallest takes 40 times the memory of its bytes
_MAX_SETS = 100_000
# such keys of one hash in one container
_MAX_COLLIDING = 64
# items of an iterator without end that are handed over
_FIRST = 2_000

_LENGTH = Struct(">I")
_INT64 = Struct(">q")
_FLOAT = Struct(">d")
_COMPLEX = Struct(">dd")
_SMALL = 1 << 32
_BY_CONTENT = frozenset({"subclass", "namedtuple", "numpy"})
Keep = Callable[[Any], tuple[str, Any] | None]
"""What stands for a value that stays in its process: a function's number, or an object's, its class and attributes."""
# of what is shown by its parts, or made by the receiver: the types of its content
_SHAPES: dict[str, tuple[type, ...]] = {
    "ListNode": (list,),
    "TreeNode": (list,),
    "builtin": (str,),
    "argument": (int,),
    "function": (int,),
    "object": (int, str, dict),
    "iterator": (str, list),
    "Enum": (str, str, object),
    "subclass": (str, object),
    "namedtuple": (str, tuple, tuple),
    "numpy": (str, object, object),
}
_SEQUENCES: dict[Any, bytes] = {list: b"l", tuple: b"u", set: b"e", frozenset: b"z"}


class Malformed(ValueError):
    """The bytes are not what `encode` writes."""


class TooLarge(ValueError):
    """The value is beyond the limit of bytes."""


class Opaque:
    """A value that can't leave its process. Equal to nothing."""

    __slots__ = ("passed_on", "what")

    def __init__(self, what: str, passed_on: bool = False) -> None:
        self.what = what
        self.passed_on = passed_on
        """Whether its sender had it from another process, and did not make it."""

    def __repr__(self) -> str:
        return f"<{self.what}>"


class Typed:
    """A value by its kind and content, where no class for it is at hand: nodes, an iterator, a builtin by its name.

    An iterator equals nothing, as in Python.
    """

    __slots__ = ("content", "kind")

    def __init__(self, kind: str, content: Any) -> None:
        self.kind = kind
        self.content = content

    def __eq__(self, other: object) -> bool:
        if self.kind == "iterator" or not isinstance(other, Typed):
            return self is other
        return self.kind == other.kind and bool(self.content == other.content)

    def __hash__(self) -> int:
        return hash((self.kind, self.content))

    def __repr__(self) -> str:
        return self.shown(repr)

    def shown(self, text_of: Callable[[Any], str]) -> str:
        """`ListNode([1, 2])`, `Fraction(1, 3)`; what a subclass's value holds; the name of a builtin."""
        if self.kind == "builtin":
            return str(self.content)
        if self.kind == "iterator":
            return f"<{self.content[0]} of {text_of(self.content[1])}>"
        if self.kind == "Enum":
            return f"<{self.content[0]}.{self.content[1]}>"
        if self.kind in _BY_CONTENT:
            return text_of(self.content[-1])
        if self.kind == "object":
            return f"{self.content[1]}({text_of(self.content[2])})"
        text = text_of(self.content)
        return f"{self.kind}{text}" if type(self.content) is tuple else f"{self.kind}({text})"


def encode(value: object, limit: int = MAX_BYTES, typed: bool | Keep = False) -> bytes:
    """`typed`: with what a value has beyond that of its base. Raises `TooLarge` beyond `limit` bytes."""
    out = bytearray()
    _put(out, value, _MAX_DEPTH, limit, typed)
    return bytes(out)


def comparable(kind: str, content: Any) -> Any:
    """A value for a comparison away from the program."""
    if kind in ("builtin", "ListNode", "TreeNode", "iterator", "Enum"):
        return described(kind, content)
    return object_values.library(kind, content)


def described(kind: str, content: Any) -> Typed:
    """A value that is shown or passed on, and made by none. Its sender may have written any content."""
    shape = _SHAPES.get(kind, (object,))
    parts = content if len(shape) > 1 else (content,)
    fits = type(parts) is tuple and len(parts) == len(shape)
    if not fits or any(wanted not in (object, type(part)) for wanted, part in zip(shape, parts, strict=True)):
        raise Malformed(f"malformed data: no content of {kind[:100]}")
    return Typed(kind, content)


def decode(data: bytes, make: Maker = comparable) -> Any:
    """The value that `encode` wrote; make(kind, content) makes what is no builtin. Raises `Malformed`."""
    try:
        value, end = _get(data, 0, _MAX_DEPTH, make, [_MAX_CHOSEN_KEYS, _MAX_SETS])
    except Malformed:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, StructError) as error:
        raise Malformed(f"malformed data: {error}") from error
    if end != len(data):
        raise Malformed("malformed data: bytes after the end")
    return value


def first_opaque(value: Any) -> Opaque | None:
    """The first value within that its own sender could not send."""
    if type(value) is Opaque:
        return None if value.passed_on else value
    if isinstance(value, dict):
        value = (*value.keys(), *value.values())
    elif type(value) is Typed:
        value = (value.content,)
    elif not isinstance(value, list | tuple | set | frozenset | deque):
        return None
    found = map(first_opaque, value)
    return next((opaque for opaque in found if opaque is not None), None)


def pack(value: Any) -> bytes:
    """`value` for `unpack`: how the parent, which is trusted, speaks to a child. Raises `TooLarge`."""
    try:
        return b"M" + marshal.dumps(value, 2)  # version 2 shares no objects: a mutated list is one list
    except ValueError:  # nodes, or too deep
        return b"W" + encode(value)


def unpack(data: bytes, make: Maker = comparable) -> Any:
    """The value that the parent packed. Never used on what a child sent: `marshal` believes what it reads."""
    return marshal.loads(memoryview(data)[1:]) if data[:1] == b"M" else decode(data[1:], make)


def _put(out: bytearray, value: Any, depth: int, limit: int, typed: bool | Keep) -> None:
    kind = type(value)
    if type(kind) is not type:  # a class of classes may answer for its class: it is not asked
        return _put_unknown(out, value, depth, limit, typed)
    if kind is int:
        _put_int(out, value, limit)
    elif kind is str:
        _put_bytes(out, b"s", value.encode("utf-8", "surrogatepass"), limit)
    elif value is None:
        out += b"n"
    elif kind is bool:
        out += b"t" if value else b"f"
    elif kind is float:
        out += b"d" + _FLOAT.pack(value)
    elif kind in _SEQUENCES:
        _put_sequence(out, value, depth, limit, typed)
    elif kind is dict:
        if depth == 0:
            raise TooLarge("nested too deeply")
        out += b"m" + _LENGTH.pack(len(value))
        for key, item in value.items():
            _put(out, key, depth - 1, limit, typed)
            _put(out, item, depth - 1, limit, typed)
    elif kind is bytes:
        _put_bytes(out, b"b", value, limit)
    elif kind is complex:
        out += b"c" + _COMPLEX.pack(value.real, value.imag)
    elif kind is Typed:
        _put_typed(out, value.kind, value.content, depth, limit, typed)
    elif kind is Opaque:
        _put_opaque(out, value.what, limit, b"O")
    else:
        _put_unknown(out, value, depth, limit, typed)
    if len(out) > limit:
        raise TooLarge(f"more than {limit} bytes")


def _put_unknown(out: bytearray, value: Any, depth: int, limit: int, typed: bool | Keep) -> None:
    name = object_values.name_of(type(value))
    if (builtin := object_values.BUILTIN_NAMES.get(id(value))) is not None:
        _put_typed(out, "builtin", builtin, depth, limit, typed)
    elif name in ("ListNode", "TreeNode"):
        values = (object_values.chain_values if name == "ListNode" else object_values.tree_levels)(value)
        if values is None:
            return _put_opaque(out, f"{name} with a cycle", limit)
        _put_typed(out, name, values, depth, limit, typed)
    elif object_values.is_iterator(value):
        endless, items = _items(value, limit)
        _put_typed(out, "iterator", (endless + name, items), depth, limit, typed)
    elif callable(typed) and (kept := typed(value)) is not None:
        _put_typed(out, *kept, depth, limit, typed)
    elif depth and (found := object_values.held(value, bool(typed))) is not None:
        if found[0]:
            _put_typed(out, *found, depth, limit, typed)
        else:
            _put(out, found[1], depth - 1, limit, typed)
    else:
        _put_opaque(out, name, limit)


def _put_typed(out: bytearray, kind: str, content: Any, depth: int, limit: int, typed: bool | Keep) -> None:
    out += b"x"
    _put_sequence(out, (kind, content), depth, limit, typed)


def _items(iterator: Any, limit: int) -> tuple[str, list[Any]]:
    # an iterator without end meets the limit; its items may grow, as Fibonacci's numbers do
    items, held = list[Any](), 0
    for item in iterator:
        items.append(item)
        held += object.__sizeof__(item)
        if held > 4 * limit or len(items) > limit // 16:
            sizes = accumulate(map(object.__sizeof__, items[:_FIRST]))
            return object_values.ENDLESS, [item for item, size in zip(items, sizes, strict=False) if size < limit >> 4]
    return "", items


def _put_opaque(out: bytearray, what: str, limit: int, tag: bytes = b"o") -> None:
    _put_bytes(out, tag, str.encode(what, "utf-8", "replace")[:200], limit)


def _put_int(out: bytearray, value: int, limit: int) -> None:
    if -(1 << 63) <= value < 1 << 63:
        out += b"j" + _INT64.pack(value)
        return
    size = value.bit_length() // 8 + 1
    if size > limit:
        raise TooLarge(f"an int of more than {limit} bytes")
    _put_bytes(out, b"i", value.to_bytes(size, "big", signed=True), limit)


def _put_bytes(out: bytearray, tag: bytes, data: bytes, limit: int) -> None:
    if len(out) + len(data) > limit:
        raise TooLarge(f"more than {limit} bytes")
    out += tag + _LENGTH.pack(len(data)) + data


def _put_sequence(out: bytearray, value: Any, depth: int, limit: int, typed: bool | Keep) -> None:
    if depth == 0:
        raise TooLarge("nested too deeply")
    if len(out) + len(value) > limit:
        raise TooLarge(f"more than {limit} bytes")
    # most large results are lists of numbers alone: packed at once, without a call an item
    if type(value) is list and len(value) > 3:
        kinds = set(map(type, value))
        if kinds == {int}:
            try:
                packed = array("q", value)
            except OverflowError:
                pass  # beyond 64 bits: written one by one below
            else:
                return _put_bytes(out, b"Q", packed.tobytes(), limit)
        elif kinds == {float}:
            return _put_bytes(out, b"D", array("d", value).tobytes(), limit)
    out += _SEQUENCES[type(value)] + _LENGTH.pack(len(value))
    for item in value:
        _put(out, item, depth - 1, limit, typed)


def _get(data: bytes, at: int, depth: int, make: Maker, left: list[int]) -> tuple[Any, int]:
    tag = data[at : at + 1]
    at += 1
    if tag == b"j":
        return _INT64.unpack_from(data, at)[0], at + 8
    if tag == b"n":
        return None, at
    if tag in (b"t", b"f"):
        return tag == b"t", at
    if tag == b"d":
        return _FLOAT.unpack_from(data, at)[0], at + 8
    if tag == b"c":
        return complex(*_COMPLEX.unpack_from(data, at)), at + 16
    if tag == b"x":
        if data[at : at + 1] != b"u":
            raise Malformed("malformed data: a kind without content")
        (kind, content), at = _get(data, at, depth, make, left)
        left[1] -= kind == "deque"
        if left[1] < 0 or type(kind) is not str:
            raise Malformed("malformed data: too many deques, or no kind")
        return make(kind, content), at
    # what is left has a length
    (size,) = _LENGTH.unpack_from(data, at)
    at += 4
    if tag in (b"l", b"u", b"e", b"z", b"m"):
        # an item takes at least a byte: a length that lies is refused before anything is allocated for it
        if depth == 0 or size > len(data) - at:
            raise Malformed("malformed data: too deep or cut short")
        return _get_items(data, at, tag, size, depth - 1, make, left)
    content = data[at : at + size]
    if len(content) != size:
        raise Malformed("malformed data: cut short")
    return _CONTENT[tag](content), at + size


def _get_items(
    data: bytes, at: int, tag: bytes, size: int, depth: int, make: Maker, left: list[int]
) -> tuple[Any, int]:
    items = []
    for _ in range(size * 2 if tag == b"m" else size):
        item, at = _get(data, at, depth, make, left)
        items.append(item)
    if tag == b"l":
        return items, at
    if tag == b"u":
        return tuple(items), at
    # Before a set or dict is built: its keys' hashes may all be one. Some are let through, as real results have them.
    hashed = items[::2] if tag == b"m" else items
    left[1] -= 1
    chosen = [key for key in hashed if not _hash_is_safe(key)]
    left[0] -= len(chosen)
    if min(left) < 0 or (len(chosen) > _MAX_COLLIDING and max(Counter(map(hash, chosen)).values()) > _MAX_COLLIDING):
        raise Malformed("malformed data: too many sets, or keys that could be made to collide")
    if tag == b"m":
        return dict(zip(hashed, items[1::2], strict=True)), at
    return (set(items) if tag == b"e" else frozenset(items)), at


def _hash_is_safe(key: object) -> bool:
    """Whether nobody can choose many such keys of equal hash (text hashes are salted)."""
    kind = type(key)
    return kind is str or kind is bytes or (kind is int and -_SMALL < key < _SMALL)  # type: ignore[operator]


_CONTENT: dict[bytes, Callable[[bytes], Any]] = {
    b"s": lambda content: content.decode("utf-8", "surrogatepass"),
    b"b": bytes,
    b"i": lambda content: int.from_bytes(content, "big", signed=True),
    b"o": lambda content: Opaque(content.decode("utf-8", "replace")),
    b"O": lambda content: Opaque(content.decode("utf-8", "replace"), True),
    b"Q": lambda content: array("q", content).tolist(),
    b"D": lambda content: array("d", content).tolist(),
}
