"""Where values come from: tables that take each other's place, names made from what a table held, places in tables.

Standard library only.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from raypoly.strategies.features.index_moves import pairs
from raypoly.strategies.features.scene import Scene, key, names, same
from raypoly.strategies.live_code.constructs import called

_COPIES = frozenset({"list", "dict", "set", "Counter"})


def rolling_groups(scene: Scene) -> list[set[str]]:
    """Containers, those that take each other's place in a loop together: `prev = cur`."""
    groups: dict[str, set[str]] = {name: {name} for name in sorted(set(scene.done_to) | set(scene.made))}
    for name, values in scene.made.items():
        for value in values:
            other = key(value)
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "copy":
                other = key(value.func.value)
            if isinstance(value, ast.Call) and called(value) in _COPIES and len(value.args) == 1:
                other = key(value.args[0])
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
                other = key(value.value)
            repeated = any(scene.loops(v) for v in values if v is value)
            if other in groups and repeated and (scene.kinds(other) & {"store", "add_to", "append", "add"}):
                joined = groups[name] | groups[other]
                for member in joined:
                    groups[member] = joined
    unique: list[set[str]] = []
    for group in groups.values():
        if group not in unique:
            unique.append(group)
    return unique


@dataclass(frozen=True)
class Flow:
    """Names whose value comes from what a table held."""

    any: set[str]
    worked: set[str]
    """Those that were computed from it, not just read."""


def flow_of(scene: Scene, reads: set[int], group: set[str]) -> Flow:
    found: set[str] = set()
    worked: set[str] = set()
    if len(group) > 1:
        found |= {
            x
            for name in group
            for n in scene.uses(name, "each")
            if isinstance(n, (ast.For, ast.comprehension))
            for x in names(n.target)
        }
    worked |= found
    made: list[tuple[ast.expr, ast.expr]] = []
    for n in scene.nodes:
        if isinstance(n, ast.Assign):
            made.extend((target, value) for target, value in pairs(n) if isinstance(target, (ast.Name, ast.Tuple)))
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            made.append((n.target, n.value))
        elif isinstance(n, ast.For):
            made.append((n.target, n.iter))
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "append" and n.args:
            made.append((n.func.value, n.args[0]))
    while True:
        before = len(found) + len(worked)
        for target, value in made:
            if any(id(n) in reads for n in ast.walk(value)) or names(value) & found:
                found |= names(target) - group
                if not isinstance(value, (ast.Name, ast.Subscript)) or names(value) & worked:
                    worked |= names(target) - group
        if len(found) + len(worked) == before:
            return Flow(found, worked)


def statement(scene: Scene, node: ast.AST) -> ast.AST:
    while not isinstance(node, ast.stmt):
        node = scene.parent[id(node)]
    return node


def stored_value(stmt: ast.AST, store: ast.AST) -> ast.expr | None:
    if isinstance(store, ast.Call):
        return store.args[0] if store.args else None
    if isinstance(stmt, ast.AugAssign):
        return stmt.value
    return stmt.value if isinstance(stmt, ast.Assign) else None


def same_place(read: ast.AST, store: ast.AST) -> bool:
    if isinstance(read, ast.Call) and isinstance(store, ast.Subscript):
        return bool(read.args) and same(read.args[0], store.slice)
    if not isinstance(read, ast.Subscript) or not isinstance(store, ast.Subscript):
        return False
    return all(map(same, _indices(read), _indices(store)))


def _indices(node: ast.expr) -> list[ast.expr]:
    """The indices of `t[i][j]`, first to last."""
    found: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        found.insert(0, node.slice)
        node = node.value
    return found
