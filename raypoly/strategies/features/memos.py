"""Memoised recursion: a cache by decorator, or a table that is written with results and read to return early."""

from __future__ import annotations

import ast

from raypoly.strategies.features.scene import Scene, contains, key, method_owner, names
from raypoly.strategies.live_code.constructs import called


def is_cached(scene: Scene, name: str, function: ast.AST) -> bool:
    decorators = getattr(function, "decorator_list", [])
    if any(
        "cache" in part
        for d in decorators
        for n in ast.walk(d)
        for part in (getattr(n, "id", ""), getattr(n, "attr", ""))
    ):
        return True
    return any("cache" in called(c) and any(name in names(a) for a in c.args) for c in scene.calls) or any(
        isinstance(c.func, ast.Call) and "cache" in called(c.func) and any(name in names(a) for a in c.args)
        for c in scene.calls
    )


def remembers(scene: Scene, inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    """A table that outlives the call, is written with results and read to return early."""
    if _keeps_failures(inner, calls):
        return True
    answers = {id(c) for c in calls}
    results = _results(inner, answers)
    returned = {
        k
        for n in inner
        if isinstance(n, ast.Return) and n.value
        for p in ast.walk(n.value)
        if isinstance(p, (ast.Subscript, ast.Attribute)) and (k := _owner(p))
    }
    for n in inner:
        if not isinstance(n, ast.Assign):
            continue
        for target in n.targets:
            if isinstance(target, ast.Subscript) and (table := _owner(target)) in returned:
                asked = any(
                    isinstance(p, ast.Compare) and table in {_owner(q) for q in ast.walk(p)} | names(p) for p in inner
                ) or any(
                    isinstance(p, ast.If) and table in {_owner(q) for q in ast.walk(p.test)} | names(p.test)
                    for p in inner
                )
                if asked and (contains(n.value, answers) or names(n.value) & results):
                    return True
    return False


def _keeps_failures(inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    """A set of what led nowhere: asked first, and added to only after the recursive calls."""
    if not calls:
        return False
    first, last = min(c.lineno for c in calls), max(c.lineno for c in calls)
    adds = [n for n in inner if isinstance(n, ast.Call) and method_owner(n, "add") and len(n.args) == 1]
    marks = [n for n in inner if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript)]
    if not adds or marks or any(n.lineno <= last for n in adds):
        return False
    asked = {
        key(n.comparators[0])
        for n in inner
        if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.In) and n.lineno < first
    }
    return any(key(method_owner(n, "add")) in asked for n in adds)


def _results(inner: list[ast.AST], answers: set[int]) -> set[str]:
    """Names whose value comes from what the recursive calls gave."""
    flow: set[str] = set()
    made = [n for n in inner if isinstance(n, (ast.Assign, ast.AugAssign, ast.NamedExpr))]
    steered = [
        n
        for n in inner
        if isinstance(n, (ast.If, ast.For)) and contains(n.test if isinstance(n, ast.If) else n.iter, answers)
    ]
    flow |= {
        name for n in steered for m in ast.walk(n) if isinstance(m, ast.Assign) for t in m.targets for name in names(t)
    }
    while True:
        more = {
            name
            for n in made
            if n.value is not None and (contains(n.value, answers) or names(n.value) & flow)
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
