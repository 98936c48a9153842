from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.verifier.sandbox.child import plain_data

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
keys = st.integers() | st.text() | st.tuples(st.integers(), st.text())
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner) | st.sets(keys) | st.frozensets(keys)
    ),
    max_leaves=40,
)


def exact(value: Any) -> Any:
    """A value with its types spelled out: 1, 1.0 and True are equal, their types are not."""
    if isinstance(value, list | tuple):
        return type(value), [exact(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value), {(type(item), item) for item in value}
    if isinstance(value, dict):
        return dict, [(exact(key), exact(item)) for key, item in value.items()]
    return type(value), repr(value)


@given(values)
def test_plain_data_comes_back_exactly(value: Any) -> None:
    assert exact(plain_data.decode(plain_data.encode(value))) == exact(value)


@given(st.binary(max_size=300))
@settings(max_examples=2000)
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        plain_data.decode(data)
    except plain_data.Malformed:
        return


@given(values, st.data())
@settings(max_examples=500)
def test_damaged_messages_are_decoded_or_refused(value: Any, data: st.DataObject) -> None:
    message = bytearray(plain_data.encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        plain_data.decode(bytes(message[: data.draw(st.integers(0, len(message)))]))
    except plain_data.Malformed:
        return


def test_what_is_too_large_or_too_deep_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    for value in (nested, [0] * 10**7, "x" * 10**8, 1 << 10**9, list(range(10**7))):
        with pytest.raises(plain_data.TooLarge):
            plain_data.encode(value, limit=1 << 16)


def test_lengths_that_lie_cost_no_memory() -> None:
    for tag in b"luezmsbioQDIL":
        with pytest.raises(plain_data.Malformed):
            plain_data.decode(bytes([tag]) + b"\xff\xff\xff\xff" + b"n" * 10)


def test_keys_made_to_collide_are_refused() -> None:
    colliding = [((1 << 61) - 1) * i for i in range(30_000)]
    with pytest.raises(plain_data.Malformed, match="collide"):
        plain_data.decode(plain_data.encode({str(i): {value} for i, value in enumerate(colliding)}))


def test_objects_that_are_no_plain_data_equal_nothing() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

    for value in (Equal(), object, print, iter([1])):
        decoded = plain_data.decode(plain_data.encode(value))
        assert decoded not in (3, [1], None)
        assert decoded != value or isinstance(value, Equal)


def test_keys_made_to_collide_are_refused_before_they_cost_time() -> None:
    def colliding(count: int) -> bytes:
        return plain_data.encode({(None, (2**61 - 1) * number) for number in range(count)})

    assert len(plain_data.decode(colliding(60))) == 60
    with pytest.raises(plain_data.Malformed, match="collide"):
        plain_data.decode(colliding(100))
