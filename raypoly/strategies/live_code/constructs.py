"""What repeats work in a program, by syntax: its live constructs.

live_constructs(live_program("def f(n):\\n return sum([i for i in range(n)])", "f").tree)  ->  ("comprehension",)
"""

from __future__ import annotations

import ast

from raypoly.strategies.live_code.bindings import nodes, reach


def live_constructs(tree: ast.Module) -> tuple[str, ...]:
    """Looping constructs of a live program, sorted; `("closed_form",)` where none repeats."""
    found = {name for node in nodes(tree) if (name := construct_of(node)) is not None}
    if recursive_functions(tree):
        found.add("recursion")
    return tuple(sorted(found)) or ("closed_form",)


def construct_of(node: ast.AST) -> str | None:
    """The construct that one node is; recursion is no single node."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return "for"
    if isinstance(node, ast.While):
        return "while"
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
        return "comprehension"
    if isinstance(node, (ast.GeneratorExp, ast.Yield, ast.YieldFrom)):
        return "generator"
    if isinstance(node, ast.Call):
        name = called(node)
        return name if name in ("map", "filter", "reduce") else None
    return None


def called(call: ast.Call) -> str:
    """`reduce` of `functools.reduce(...)`; empty where there is none."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def recursive_functions(tree: ast.Module) -> set[str]:
    """Functions (methods, named lambdas) that reach themselves through calls by name."""
    calls: dict[str, set[str]] = {}
    for node in nodes(tree):
        body: ast.AST | None = None
        names: list[str] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names, body = [node.name], node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names, body = [t.id for t in node.targets if isinstance(t, ast.Name)], node.value
        if body is not None:
            reached = {called(part) for part in nodes(body) if isinstance(part, ast.Call)}
            for name in names:
                calls.setdefault(name, set()).update(reached)
    return {name for name in calls if name in reach(calls[name], calls)}
