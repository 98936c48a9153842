"""Memoised recursion: a cache by decorator, or a table that is written with results and read to return early."""

from __future__ import annotations

import ast

from raypoly.strategies.features.scene import Scene, contains, key, method_owner, names, nodes_in
from raypoly.strategies.live_code.constructs import called


def is_cached(scene: Scene, name: str, function: ast.AST) -> bool:
    """Whether a decorator caches the function, or it is handed to something that does."""
    said = nodes_in(getattr(function, "decorator_list", []))
    if any("cache" in getattr(n, "id", "") or "cache" in getattr(n, "attr", "") for n in said):
        return True
    makers = [(c, made) for c in scene.calls for made in (c, c.func) if isinstance(made, ast.Call)]
    return any("cache" in called(made) and any(name in names(a) for a in c.args) for c, made in makers)


def remembers(scene: Scene, inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    """A table that outlives the call, is written with results and read to return early."""
    if _keeps_failures(inner, calls):
        return True
    answers = {id(c) for c in calls}
    results = _results(inner, answers)
    values = nodes_in(n.value for n in inner if isinstance(n, ast.Return) and n.value)
    returned = {_owner(n) for n in values if isinstance(n, (ast.Subscript, ast.Attribute))} - {""}
    tests = [n.test if isinstance(n, ast.If) else n for n in inner if isinstance(n, (ast.Compare, ast.If))]
    asked = {name for test in tests for name in {_owner(n) for n in ast.walk(test)} | names(test)}
    return any(
        isinstance(target, ast.Subscript)
        and _owner(target) in returned & asked
        and (contains(n.value, answers) or names(n.value) & results)
        for n in inner
        if isinstance(n, ast.Assign)
        for target in n.targets
    )


def _keeps_failures(inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    """A set of what led nowhere: asked first, and added to only after the recursive calls."""
    lines = [call.lineno for call in calls]
    adds = [n for n in inner if isinstance(n, ast.Call) and method_owner(n, "add") and len(n.args) == 1]
    marks = any(isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript) for n in inner)
    if not lines or marks or any(n.lineno <= max(lines) for n in adds):
        return False
    asked = [n for n in inner if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.In) and n.lineno < min(lines)]
    return bool({key(n.comparators[0]) for n in asked} & {key(method_owner(n, "add")) for n in adds})


def _results(inner: list[ast.AST], answers: set[int]) -> set[str]:
    """Names whose value comes from what the recursive calls gave."""
    made = [n for n in inner if isinstance(n, (ast.Assign, ast.AugAssign, ast.NamedExpr))]
    heads = [(n, n.test if isinstance(n, ast.If) else n.iter) for n in inner if isinstance(n, (ast.If, ast.For))]
    steered = nodes_in(n for n, head in heads if contains(head, answers))
    flow = {name for n in steered if isinstance(n, ast.Assign) for t in n.targets for name in names(t)}
    while True:
        more = {
            name
            for n in made
            if contains(n.value, answers) or names(n.value) & flow
            for t in (n.targets if isinstance(n, ast.Assign) else [n.target])
            if not isinstance(t, ast.Subscript)
            for name in names(t)
        } - flow
        if not more:
            return flow
        flow |= more


def _owner(node: ast.AST) -> str:
    """The container at the bottom of a chain of subscripts: `t` of `t[i][j]` and of `t.get`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute) and node.attr == "get":
        node = node.value
    return key(node)
