"""More inputs of a program than its tests: near to them, and some of four times their size, and of sixteen times."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from raypoly.verifier.sandbox.child.plain_data import Typed, pack

Inputs = tuple[list[bytes], int, int, list[int]]
"""Packed arguments, those of tests first; how many of them are; the place of the largest test; those of large ones."""
_MOST_TESTS = 16
NEAR = 24
_GROWN = (4, 16)
_MOST_ITEMS = 256
_LARGEST = 1 << 40


def inputs_of(tests: Sequence[Sequence[Any]]) -> Inputs:
    """Of the arguments of a problem's tests, in the order of a scored run."""
    by_size = sorted(range(len(tests)), key=lambda place: len(pack(tuple(tests[place]))))
    several = {*by_size[: _MOST_TESTS - 1], *by_size[-1:]}
    chosen, largest = [tuple(tests[place]) for place in sorted(several)], tuple(tests[by_size[-1]])
    larger = grown(largest)
    packed = list(dict.fromkeys(map(pack, [*chosen, *near(chosen), *larger])))
    large = {packed.index(pack(args)) for args in (largest, *larger)}
    return packed, len(set(map(pack, chosen))), packed.index(pack(largest)), sorted(large)


def near(tests: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """`NEAR` lists of arguments, each a test's with one or two changed; a third with few values."""
    random, found = Random(0), list[tuple[Any, ...]]()
    pool = _numbers(tests)
    for number in range(NEAR):
        args = list(tests[number % len(tests)])
        if number % 3 == 2:
            args = _with_few_values(args, random)
        for _ in range(1 + number % 2):
            if args:
                place = random.randrange(len(args))
                args[place] = _changed(args[place], random, pool)
        found.append(tuple(args))
    return found


def grown(args: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Four and sixteen times as large; the last with one item again and again."""
    random = Random(1)
    found = [tuple(_larger(arg, factor, random) for arg in args) for factor in _GROWN]
    return [*found, tuple(_alike(arg) for arg in found[-1])]


def _alike(value: Any) -> Any:
    return value[:1] * len(value) if _is_flat(value) else value


def _with_few_values(args: list[Any], random: Random) -> list[Any]:
    # of two values, and one a part of another: what looks for repetition finds some
    found = list[Any]()
    for arg in args:
        if not _is_flat(arg):
            found.append(arg)
            continue
        whole = next(
            (other for other in found if type(other) is type(arg) and _is_flat(other) and len(other) >= 8), None
        )
        if whole is not None:
            start, size = random.randrange(len(whole) // 2), max(4, len(arg))
            found.append(whole[start : start + size])
        else:
            few = [random.choice((arg[0], arg[0], arg[-1])) for _ in range(2 * len(arg))]
            found.append("".join(few) if type(arg) is str else few)
    return found


def _is_flat(value: Any) -> bool:
    return type(value) is str or (type(value) is list and all(type(item) is int for item in value))


def _numbers(value: Any) -> list[int]:
    if type(value) is int:
        return [value]
    if type(value) in (list, tuple):
        return [number for item in value for number in _numbers(item)][:200]
    return []


def _changed(value: Any, random: Random, pool: list[int]) -> Any:
    kind = type(value)
    if kind is bool:
        return not value
    if kind is int:
        ways = (value + 1, value - 1, 2 * value, value // 2, random.choice(pool or [0]))
        new = random.choice(ways)
        return abs(new) if value >= 0 else new
    if kind is float:
        return value + random.choice((-1.0, 0.5, 1.0))
    if kind is str:
        return "".join(_rearranged(list(value), random, list(value) or ["a"]))
    if kind is list:
        if value and all(type(item) is list for item in value) and len(set(map(len, value))) == 1:
            return _grid_changed(value, random)
        return _rearranged(list(value), random, pool if all(type(item) is int for item in value) else list(value))
    if kind is tuple:
        return tuple(_changed(item, random, pool) if random.random() < 0.5 else item for item in value)
    if kind is dict:
        return {key: _changed(item, random, pool) if random.random() < 0.5 else item for key, item in value.items()}
    if kind is Typed and value.kind == "ListNode":
        return Typed(value.kind, _rearranged(list(value.content), random, pool))
    return value


def _rearranged(items: list[Any], random: Random, others: Sequence[Any]) -> list[Any]:
    way = random.randrange(5)
    if not items:
        return [random.choice(others)] if others and way < 3 else items
    place = random.randrange(len(items))
    if way == 0:
        random.shuffle(items)
    elif way == 1:
        del items[place]
    elif way == 2:
        items.insert(place, items[random.randrange(len(items))])
    elif way == 3:
        items[place] = _changed(items[place], random, [n for n in others if type(n) is int])
    elif others:
        items[place] = random.choice(others)
    return items


def _grid_changed(grid: list[list[Any]], random: Random) -> list[list[Any]]:
    """Rows of one length: by column, since the columns of records mean different things."""
    rows = [list(row) for row in grid]
    way, at = random.randrange(4), random.randrange(len(rows))
    if way == 0:
        random.shuffle(rows)
    elif way == 1 and len(rows) > 2:
        rows[at] = list(random.choice(rows))
    elif rows[0]:
        column = random.randrange(len(rows[0]))
        items = [row[column] for row in rows]
        if way == 2:
            random.shuffle(items)
        else:
            items[at] = random.choice([item for row in rows for item in row] if len(rows[0]) > 3 else items)
        for row, item in zip(rows, items, strict=True):
            row[column] = item
    return rows


def _larger(value: Any, factor: int, random: Random) -> Any:
    kind = type(value)
    if kind is int:
        return value * factor if abs(value) < _LARGEST else value
    if kind is str:
        return (value * factor)[:_MOST_ITEMS]
    if kind is list and value:
        items = (value * factor)[:_MOST_ITEMS]
        if all(type(item) is int for item in value):
            return [item + random.randrange(factor) * (1 if item >= 0 else -1) for item in items]
        if all(type(item) is list for item in value) and len(set(map(len, value))) == 1:
            half = 2 if factor == 4 else 4
            return [(row * half)[:_MOST_ITEMS] for row in value * half]
        return items
    if kind is Typed and value.kind == "ListNode":
        return Typed(value.kind, (value.content * factor)[:_MOST_ITEMS])
    return value
