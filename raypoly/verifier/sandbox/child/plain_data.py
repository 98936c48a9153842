"""Plain data as bytes: arguments into a sandbox child, results out. Never pickle.

A value is a tag and its content. Builtins are written by value, those of a subclass by what their base holds, nodes as
the values along the chain or level by level (`object_values.py`), a builtin type or function by its name, which
becomes itself in a candidate's process alone; anything else becomes an `Opaque` that equals nothing. The decoder reads
bytes that a hostile process wrote: it is bounded in depth, memory (a small multiple of the bytes) and time (few keys
whose hash an attacker can choose), and raises `Malformed` for whatever it doesn't know.
"""

from __future__ import annotations

import marshal
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from types import GeneratorType
from typing import Any

from raypoly.verifier.sandbox.child import object_values
from raypoly.verifier.sandbox.child.object_values import NodeMaker

MAX_BYTES = 16 << 20
_MAX_DEPTH = 100
# keys whose hashes the sender can choose: more could be made to collide for hours
_MAX_CHOSEN_KEYS = 20_000
# sets and dicts: the smallest takes 40 times the memory of its bytes
_MAX_SETS = 100_000
# such keys of one hash in one container
_MAX_COLLIDING = 64

_LENGTH = Struct(">I")
_INT64 = Struct(">q")
_FLOAT = Struct(">d")
_COMPLEX = Struct(">dd")
_SMALL = 1 << 32
_DICTS = (dict, defaultdict, OrderedDict, Counter)
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


class Nodes:
    """A `ListNode` chain or `TreeNode` tree by value, where no class for it is at hand; or a `builtin` by its name."""

    __slots__ = ("kind", "values")

    def __init__(self, kind: str, values: list[Any]) -> None:
        self.kind = kind
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nodes) and self.kind == other.kind and self.values == other.values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return str(self.values[0]) if self.kind == "builtin" else f"{self.kind}({self.values!r})"


class Stream(list[Any]):
    """Items of an iterator, a view or a deque. Equal to nothing, as those are to a list."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = None
    __slots__ = ()


_STREAMS = frozenset((deque, range, map, filter, zip, enumerate, reversed, GeneratorType, Stream)).union(
    map(type, ({}.keys(), {}.values(), {}.items(), iter([]), iter(()), iter({})))
)


def encode(value: object, limit: int = MAX_BYTES) -> bytes:
    """Raises `TooLarge` beyond `limit` bytes."""
    out = bytearray()
    _put(out, value, _MAX_DEPTH, limit)
    return bytes(out)


def decode(data: bytes, make: NodeMaker = Nodes) -> Any:
    """The value that `encode` wrote; make(kind, values) makes chains and trees. Raises `Malformed`."""
    try:
        value, end = _get(data, 0, _MAX_DEPTH, make, [_MAX_CHOSEN_KEYS, _MAX_SETS])
    except Malformed:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, StructError) as error:
        raise Malformed(f"malformed data: {error}") from error
    if end != len(data):
        raise Malformed("malformed data: bytes after the end")
    return value


def first_opaque(value: Any) -> Opaque | None:
    """The first value within that its own sender could not send."""
    if type(value) is Opaque:
        return None if value.passed_on else value
    if type(value) in _DICTS:
        value = (*value.keys(), *value.values())
    elif type(value) is Nodes:
        value = value.values
    elif type(value) not in _SEQUENCES and type(value) is not Stream:
        return None
    found = map(first_opaque, value)
    return next((opaque for opaque in found if opaque is not None), None)


def pack(value: Any) -> bytes:
    """`value` for `unpack`: how the parent, which is trusted, speaks to a child. Raises `TooLarge`."""
    try:
        return b"M" + marshal.dumps(value, 2)  # version 2 shares no objects: a mutated list is one list
    except ValueError:  # nodes, or too deep
        return b"W" + encode(value)


def unpack(data: bytes, make: NodeMaker = Nodes) -> Any:
    """The value that the parent packed. Never used on what a child sent: `marshal` believes what it reads."""
    return marshal.loads(memoryview(data)[1:]) if data[:1] == b"M" else decode(data[1:], make)


def _put(out: bytearray, value: Any, depth: int, limit: int) -> None:
    kind = type(value)
    if type(kind) is not type:  # a class of classes may answer for its class: it is not asked
        return _put_unknown(out, value, depth, limit)
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
        _put_sequence(out, value, depth, limit)
    elif kind in _DICTS:
        if depth == 0:
            raise TooLarge("nested too deeply")
        out += b"m" + _LENGTH.pack(len(value))
        for key, item in dict.items(value):
            _put(out, key, depth - 1, limit)
            _put(out, item, depth - 1, limit)
    elif kind is bytes:
        _put_bytes(out, b"b", value, limit)
    elif kind in _STREAMS or kind.__module__ == "itertools":
        _put_stream(out, value, depth, limit)
    elif kind is complex:
        out += b"c" + _COMPLEX.pack(value.real, value.imag)
    elif kind is Nodes:
        _put_nodes(out, value.kind, value.values, depth, limit)
    elif kind is Opaque:
        _put_opaque(out, value.what, limit, b"O")
    else:
        _put_unknown(out, value, depth, limit)
    if len(out) > limit:
        raise TooLarge(f"more than {limit} bytes")


def _put_unknown(out: bytearray, value: Any, depth: int, limit: int) -> None:
    name = object_values.name_of(type(value))
    if (builtin := object_values.BUILTIN_NAMES.get(id(value))) is not None:
        _put_bytes(out, b"y", builtin.encode(), limit)
    elif name == "ListNode":
        _put_nodes(out, name, object_values.chain_values(value), depth, limit)
    elif name == "TreeNode":
        _put_nodes(out, name, object_values.tree_levels(value), depth, limit)
    elif depth and (held := object_values.base_value(value)) is not None:
        _put(out, held, depth - 1, limit)
    else:
        _put_opaque(out, name, limit)


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


def _put_sequence(out: bytearray, value: Any, depth: int, limit: int) -> None:
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
        _put(out, item, depth - 1, limit)


def _put_stream(out: bytearray, value: Any, depth: int, limit: int) -> None:
    # an iterator without end meets the limit
    items = []
    for item in value:
        items.append(item)
        if len(items) > limit // 16:
            raise TooLarge(f"more than {limit} bytes")
    out += b"I"
    _put_sequence(out, items, depth, limit)


def _put_nodes(out: bytearray, kind: str, values: list[Any] | None, depth: int, limit: int) -> None:
    if values is None:
        return _put_bytes(out, b"o", f"{kind} with a cycle".encode(), limit)
    if kind == "builtin":
        return _put_bytes(out, b"y", str(values[0]).encode(), limit)
    out += b"L" if kind == "ListNode" else b"T"
    _put_sequence(out, values, depth, limit)


def _get(data: bytes, at: int, depth: int, make: NodeMaker, left: list[int]) -> tuple[Any, int]:
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
    if tag in (b"L", b"T", b"I") and data[at : at + 1] not in (b"l", b"Q", b"D"):
        raise Malformed("malformed data: nodes without a list")
    if tag in (b"L", b"T"):
        values, at = _get(data, at, depth, make, left)
        return make("ListNode" if tag == b"L" else "TreeNode", values), at
    if tag == b"I":
        items, at = _get(data, at, depth, make, left)
        return Stream(items), at
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
    return (make("builtin", [content.decode()]) if tag == b"y" else _CONTENT[tag](content)), at + size


def _get_items(
    data: bytes, at: int, tag: bytes, size: int, depth: int, make: NodeMaker, left: list[int]
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
