"""The decoder of results against bytes that a hostile process might write.

    RAYPOLY_FUZZ=1000000 python -m pytest tests/raypoly/verifier/sandbox/test_wire_fuzz.py

`RAYPOLY_FUZZ` is the number of inputs, 8,000 where it is not set.
"""

import os
import random
import tracemalloc
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raypoly.verifier.sandbox.child import object_values as object_values
from raypoly.verifier.sandbox.child import plain_data

INPUTS = int(os.environ.get("RAYPOLY_FUZZ", "8000"))
BATCH = 200
"""Inputs made from one example: hypothesis chooses the values, a seed the damage."""
SAMPLED = 100
"""One input in so many is decoded once more under `tracemalloc`, which is slow."""
MULTIPLE, ALLOWANCE = 48, 1 << 17
"""Bytes of memory that a byte of a small message may cost (an empty set is 216 in 5), and those that none does: 200
levels of nesting take 165 kB in 1 kB."""
LARGE_MULTIPLE, SETS = 24, 22 << 20
"""Of a large one: sets are few."""
SEQUENCES = b"luezm"
TAGS = b"jntfdcxluezmsbioOQD"


def typed(kind: bytes) -> bytes:
    """The bytes in front of a value's content."""
    return b"xu\0\0\0\2s\0\0\0" + bytes((len(kind),)) + kind


CHAIN, DEQUE = typed(b"ListNode") + b"l\0\0\0\0", typed(b"deque") + b"u\0\0\0\2l\0\0\0\0n"

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
keys = st.integers() | st.text() | st.tuples(st.integers(), st.text())
chains = st.builds(
    plain_data.Typed, st.sampled_from(["ListNode", "TreeNode"]), st.lists(st.tuples(scalars) | st.none())
)
library = st.fractions() | st.decimals(allow_nan=False) | st.dates() | st.datetimes() | st.times() | st.timedeltas()
values = st.recursive(
    scalars | chains | library | st.lists(st.integers(), min_size=4) | st.lists(st.floats(allow_nan=False), min_size=4),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner)
        | st.sets(keys)
        | st.frozensets(keys)
        | st.lists(inner).map(deque)
        | st.dictionaries(keys, inner).map(OrderedDict)
    ),
    max_leaves=30,
)

Damage = Callable[[bytearray, bytes, random.Random], None]


def flip(message: bytearray, other: bytes, rng: random.Random) -> None:
    message[rng.randrange(len(message))] ^= 1 << rng.randrange(8)


def set_tag(message: bytearray, other: bytes, rng: random.Random) -> None:
    message[rng.randrange(len(message))] = rng.choice(TAGS)


def cut(message: bytearray, other: bytes, rng: random.Random) -> None:
    start = rng.randrange(len(message))
    del message[start : start + rng.choice((1, 4, 9, len(message)))]


def splice(message: bytearray, other: bytes, rng: random.Random) -> None:
    start = rng.randrange(len(message))
    message[start : start + rng.randrange(9)] = other


def repeat(message: bytearray, other: bytes, rng: random.Random) -> None:
    start = rng.randrange(len(message))
    part = message[start : start + rng.choice((1, 5, 9, 40))]
    message[start:start] = part * rng.choice((1, 2, 50))


def lie(message: bytearray, other: bytes, rng: random.Random) -> None:
    """Another number where a length may stand."""
    start = rng.randrange(len(message))
    number = rng.choice((0, 1, 2, len(message), 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, rng.getrandbits(32)))
    message[start : start + 4] = number.to_bytes(4, "big")


def nest(message: bytearray, other: bytes, rng: random.Random) -> None:
    """Headers within headers, deeper than Python's stack."""
    headers = [bytes((tag, 0, 0, 0, 1)) for tag in SEQUENCES] + [typed(b"deque"), b"x"]
    start = rng.randrange(len(message))
    message[start:start] = b"".join(rng.choices(headers, k=2)) * rng.choice((1, 20, 60, 2000))


def grow(message: bytearray, other: bytes, rng: random.Random) -> None:
    """A list of as many values as the bytes allow."""
    item = rng.choice((b"n", b"e\0\0\0\0", b"m\0\0\0\0", DEQUE, CHAIN, b"o\0\0\0\0", other[:20]))
    count = rng.choice((1, 100, 400))
    message[:] = b"l" + count.to_bytes(4, "big") + item * count


DAMAGE: tuple[Damage, ...] = (flip, set_tag, cut, splice, repeat, lie, nest, grow)


def damaged(message: bytes, other: bytes, rng: random.Random) -> bytes:
    """The message after one to four mishaps; one time in ten it was noise to begin with."""
    noise = rng.choice((bytes(rng.choices(TAGS, k=30)), rng.randbytes(30)))
    result = bytearray(noise if rng.random() < 0.1 else message)
    for _ in range(rng.randint(1, 4)):
        if result:
            rng.choice(DAMAGE)(result, other, rng)
    return bytes(result)


def decode(data: bytes, make: object_values.Maker = plain_data.comparable) -> Any:
    """What is decoded, None where it is refused in the one way that callers expect."""
    try:
        return plain_data.decode(data, make)
    except plain_data.Malformed:
        return None


def peak(data: bytes) -> int:
    """Bytes of memory that decoding took at most."""
    tracemalloc.start()
    try:
        decode(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def allowed(size: int) -> int:
    """Bytes of memory that a message of `size` bytes may cost."""
    return min(MULTIPLE * size + ALLOWANCE, LARGE_MULTIPLE * size + SETS)


@given(values, values, st.integers(0, 1 << 32))
@settings(max_examples=max(1, INPUTS // BATCH), suppress_health_check=list(HealthCheck))
def test_damaged_messages_are_decoded_or_refused_in_bounded_memory(value: Any, other: Any, seed: int) -> None:
    rng = random.Random(seed)
    message, spliced = plain_data.encode(value), plain_data.encode(other)
    for number in range(BATCH):
        data = damaged(message, spliced, rng)
        decode(data, rng.choice((plain_data.comparable, plain_data.Typed, object_values.maker({}))))
        if number % SAMPLED == 0:
            assert peak(data) <= allowed(len(data))


@pytest.mark.parametrize("header", [bytes((tag, 0, 0, 0, 1)) for tag in SEQUENCES] + [typed(b"ListNode"), b"x", b"xx"])
def test_nesting_is_refused_before_the_stack_ends(header: bytes) -> None:
    with pytest.raises(plain_data.Malformed):
        plain_data.decode(header * 100_000)


@pytest.mark.parametrize(
    "item",
    [b"n", b"e\0\0\0\0", b"m\0\0\0\0", b"m\0\0\0\1s\0\0\0\0n", b"l\0\0\0\0", b"u\0\0\0\1n", b"o\0\0\0\0", CHAIN,
     typed(b"Counter") + b"m\0\0\0\0", typed(b"Decimal") + b"s\0\0\0\0011",
     b"j" + bytes(7) + b"\1", b"d" + bytes(8), b"s\0\0\0\1a",
     b"Q\0\0\0\x08" + b"\1" * 8],
)  # fmt: skip
def test_a_message_full_of_the_smallest_values_costs_a_small_multiple_of_its_size(item: bytes) -> None:
    count = (1 << 18) // len(item)
    data = b"l" + count.to_bytes(4, "big") + item * count
    assert len(plain_data.decode(data)) == count
    assert peak(data) <= allowed(len(data))


@pytest.mark.parametrize("item", [b"e\0\0\0\0", b"m\0\0\0\0", DEQUE, CHAIN, b"o\0\0\0\0"])
def test_a_large_message_costs_a_smaller_multiple(item: bytes) -> None:
    count = (3 << 19) // len(item)
    data = b"l" + count.to_bytes(4, "big") + item * count
    decode(data)
    assert peak(data) <= allowed(len(data))


def exact(value: Any) -> Any:
    """A value with its types spelled out: 1, 1.0 and True are equal, their types are not."""
    if isinstance(value, plain_data.Typed):
        return plain_data.Typed, value.kind, exact(value.content)
    if isinstance(value, list | tuple | deque):
        return type(value), [exact(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value), {(type(item), repr(item)) for item in value}
    if isinstance(value, dict):
        return type(value), [(exact(key), exact(item)) for key, item in value.items()]
    return type(value), repr(value)


@given(values)
def test_what_was_encoded_comes_back_exactly(value: Any) -> None:
    assert exact(plain_data.decode(plain_data.encode(value))) == exact(value)


def test_what_is_too_large_or_too_deep_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    for value in (nested, [0] * 10**7, "x" * 10**8, 1 << 10**9, list(range(10**7))):
        with pytest.raises(plain_data.TooLarge):
            plain_data.encode(value, limit=1 << 16)


def test_lengths_that_lie_cost_no_memory() -> None:
    for tag in b"luezmsbioOQD":
        with pytest.raises(plain_data.Malformed):
            plain_data.decode(bytes([tag]) + b"\xff\xff\xff\xff" + b"n" * 10)


def test_keys_made_to_collide_are_refused() -> None:
    colliding = [((1 << 61) - 1) * i for i in range(30_000)]
    with pytest.raises(plain_data.Malformed, match="collide"):
        plain_data.decode(plain_data.encode({str(i): {value} for i, value in enumerate(colliding)}))
    assert len(plain_data.decode(plain_data.encode({(None, value) for value in colliding[:60]}))) == 60
    with pytest.raises(plain_data.Malformed, match="collide"):
        plain_data.decode(plain_data.encode({(None, value) for value in colliding[:100]}))  # before they cost time


def test_objects_that_are_no_plain_data_equal_nothing() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

    for value in (Equal(), object, print, iter([1])):
        decoded = plain_data.decode(plain_data.encode(value))
        assert decoded not in (3, [1], None)
        assert decoded != value or isinstance(value, Equal)
