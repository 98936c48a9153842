"""Play a list of operations on an object: `["LRUCache", "put", "get"]` with `[[2], [1, 1], [1]]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raypoly.sandbox.child import linked_nodes, plain_data

_PLAIN = frozenset({int, str, bool, float, type(None)})


def player(namespace: dict[str, Any]) -> Callable[[list[str], list[list[Any]]], list[Any]]:
    """A function that makes an object, calls its methods in turn, and gives what each returned (None for making it)."""
    make = linked_nodes.maker(namespace)

    def play(operations: list[str], arguments: list[list[Any]]) -> list[Any]:
        made = namespace[operations[0]](*arguments[0])
        results: list[Any] = [None]
        for name, args in zip(operations[1:], arguments[1:], strict=True):
            result = getattr(made, name)(*args)
            # a copy: what is returned may be changed by the operations that follow
            results.append(result if type(result) in _PLAIN else plain_data.decode(plain_data.encode(result), make))
        return results

    return play
