"""Linked lists and other chains: links turned round, two walkers, slow and fast, nodes copied out.

Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.index_moves import pairs
from raypoly.strategies.features.scene import Scene, key, same
from raypoly.strategies.live_code.constructs import called


def features(scene: Scene) -> Iterator[str]:
    """`twin_walk`, `links_copied`, `links_turned`, `links_walked`, `floyd`."""
    yield from _links(scene)
    if _slow_and_fast(scene):
        yield "floyd"


def _links(scene: Scene) -> Iterator[str]:
    """Linked lists: two names that walk in one loop, links turned round, values or nodes copied out."""
    for loop in scene.nodes:
        if not isinstance(loop, (ast.For, ast.While)):
            continue
        body = [n for stmt in loop.body for n in ast.walk(stmt)]
        walking = [pair for n in body if isinstance(n, ast.Assign) for pair in pairs(n)]
        walkers = {
            key(target) for target, value in walking if isinstance(value, ast.Attribute) and same(value.value, target)
        }
        if len(walkers) > 1:
            yield "twin_walk"
            taken = [key(t) for s in loop.body if isinstance(s, ast.Assign) for t, v in pairs(s) if key(t) in walkers]
            if len({taken.count(name) for name in walkers if isinstance(loop, ast.While)} - {0}) > 1:
                yield "floyd"
        if walkers and any(isinstance(n, ast.Call) and called(n) == "append" for n in body):
            yield "links_copied"
        turned = {key(target.value) for target, _ in walking if isinstance(target, ast.Attribute)}
        if any(isinstance(v, ast.Call) and key(t) in [key(a) for a in v.args[1:]] for t, v in walking if key(t)):
            yield "links_turned"
        if any(isinstance(value, ast.Name) and value.id in turned for _, value in walking):
            yield "links_turned" if _turns(body) else "links_walked"


def _turns(body: list[ast.AST]) -> bool:
    """`node.next = previous` and `previous = node`."""
    both = [pair for n in body if isinstance(n, ast.Assign) for pair in pairs(n)]
    stored = {(key(target.value), key(value)) for target, value in both if isinstance(target, ast.Attribute)}
    moved = {(key(value), key(target)) for target, value in both if isinstance(target, ast.Name)}
    return any(pair in moved for pair in stored if all(pair))


def _slow_and_fast(scene: Scene) -> bool:
    """A name that takes two steps of what another takes one of: `f(f(x))`, `x.next.next`, `a[a[x]]`."""
    for node in scene.nodes:
        if not isinstance(node, ast.Assign) or not scene.loops(node):
            continue
        values = [v for n in node.targets for t in ast.walk(n) if (name := key(t)) for v in scene.made[name]]
        for value in values:
            if _twice(value):
                return True
    return False


def _twice(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
        return node.attr == node.value.attr and isinstance(node.value.value, ast.Name)
    if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Call):
        return (
            same(node.func, node.args[0].func) and len(node.args[0].args) == 1 and not isinstance(node.func, ast.Name)
        ) or (isinstance(node.func, ast.Name) and same(node.func, node.args[0].func) and node.func.id.startswith("v"))
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Subscript):
        return same(node.value, node.slice.value) and isinstance(node.slice.slice, ast.Name)
    return False
