"""Pieces of a live program: what is in them, and whether two are alike. What was found is kept with the node."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable

from raypoly.strategies.live_code.bindings import children


def walk(node: ast.AST) -> list[ast.AST]:
    """The nodes of a piece of code, level by level, but for handlers: they tell what is done where an idea fails."""
    found: list[ast.AST] | None = node.__dict__.get("walked")
    if found is None:
        found = [node]
        for part in found:
            found.extend([below for below in children(part) if type(below) is not ast.ExceptHandler])
        node.__dict__["walked"] = found
    return found


def spelled(node: ast.AST) -> Hashable:
    """What two pieces of code share iff they are alike, apart from being read or stored; kept with the node."""
    found: Hashable | None = node.__dict__.get("spelled")
    if found is None:
        fields = (getattr(node, name, None) for name in node._fields if name != "ctx")
        parts = [_spelled_field(value) for value in fields]
        found = node.__dict__["spelled"] = (type(node).__name__, *parts)
    return found


def _spelled_field(value: object) -> Hashable:
    if isinstance(value, ast.AST):
        return spelled(value)
    return tuple(map(_spelled_field, value)) if isinstance(value, list) else (type(value).__name__, repr(value))


def position(node: ast.AST) -> tuple[int, int]:
    """Line and column, which put nodes in the order of the text."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def names(node: ast.AST | None) -> set[str]:
    """Every variable in a piece of code."""
    return set() if node is None else {part.id for part in walk(node) if isinstance(part, ast.Name)}


def nodes_in(body: Iterable[ast.AST]) -> list[ast.AST]:
    """Every node of some pieces of code, piece by piece."""
    return [node for part in body for node in walk(part)]


def contains(node: ast.AST, wanted: set[int]) -> bool:
    """Whether one of these nodes, by identity, is inside another."""
    return any(id(part) in wanted for part in walk(node))


def same(left: ast.AST, right: ast.AST) -> bool:
    """Whether two pieces of code are alike, apart from being read or stored."""
    return spelled(left) == spelled(right)
