"""Growing by the best that is at hand (Dijkstra, Prim, A*), with a heap or by looking. Standard library only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.index_moves import pairs
from raypoly.strategies.features.scene import Scene, key, names
from raypoly.strategies.live_code.constructs import called

_PUSHES = frozenset({"heappush", "heappushpop", "put"})
_POPS = frozenset({"heappop", "get"})


def features(scene: Scene) -> Iterator[str]:
    """`best_first`, `quick_find`."""
    for node in scene.nodes:
        if isinstance(node, (ast.For, ast.While)) and (_by_heap(scene, node) or _by_looking(node)):
            yield "best_first"
        if isinstance(node, ast.For) and _relabels(node):
            yield "quick_find"


def _by_heap(scene: Scene, loop: ast.For | ast.While) -> bool:
    """What comes out of the heap puts all that it leads to into it."""
    if not isinstance(loop, ast.While) or not scene.library & _PUSHES:
        return False
    pops = any(isinstance(n, ast.Call) and called(n) in _POPS for n in ast.walk(loop))
    fans = [n for stmt in loop.body for n in ast.walk(stmt) if isinstance(n, ast.For)]
    return pops and any(isinstance(n, ast.Call) and called(n) in _PUSHES for fan in fans for n in ast.walk(fan))


def _by_looking(loop: ast.For | ast.While) -> bool:
    """In each round the best that is not done yet is looked for, marked as done, and what it leads to is updated."""
    chosen = {name for stmt in loop.body for name in _best(stmt)}
    marked = {_marked(node) for stmt in loop.body for node in ast.walk(stmt)}
    return bool(marked & chosen - {""})


def _marked(node: ast.AST) -> str:
    """The name that is put into a set or taken out of one, or whose place gets a constant."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
        return key(node.args[0]) if node.func.attr in ("add", "remove", "discard") else ""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return key(node.targets[0].slice) if isinstance(node.value, ast.Constant) else ""
    return ""


def _best(stmt: ast.stmt) -> Iterator[str]:
    """The names that hold the best item after `u = min(...)`, or after a loop that compares and keeps an index."""
    if isinstance(stmt, ast.Assign) and isinstance(value := stmt.value, ast.Call) and len(value.args) == 1:
        yield from names(stmt.targets[0]) if called(value) in ("min", "max") else ()
    if isinstance(stmt, ast.For):
        ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
        for choice in (n for n in ast.walk(stmt) if isinstance(n, ast.If)):
            if any(isinstance(n, ast.Compare) and isinstance(n.ops[0], ordered) for n in ast.walk(choice.test)):
                for kept in (n for part in choice.body for n in ast.walk(part) if isinstance(n, ast.Assign)):
                    for target, value in pairs(kept):
                        if isinstance(target, ast.Name) and key(value) in names(stmt.target):
                            yield target.id


def _relabels(loop: ast.For) -> bool:
    """Union by relabelling: everyone with the old label gets the new one."""
    for stmt in loop.body:
        if isinstance(stmt, ast.If) and isinstance(stmt.test, ast.Compare) and isinstance(stmt.test.ops[0], ast.Eq):
            places = {ast.dump(stmt.test.left), ast.dump(stmt.test.comparators[0])}
            for done in stmt.body:
                place = done.targets[0] if isinstance(done, ast.Assign) and key(done.value) else None
                if isinstance(place, ast.Subscript) and ast.dump(place).replace("Store()", "Load()") in places:
                    return True
    return False
