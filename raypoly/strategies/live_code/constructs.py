"""What repeats work in a program, by syntax: its live constructs.

live_constructs(live_program("def f(n):\\n return sum([i for i in range(n)])", "f").tree)  ->  ("comprehension",)
"""

from __future__ import annotations

import ast
from collections.abc import Set
from functools import lru_cache

from raypoly.strategies.live_code.bindings import bound_here, nodes, parameters, reach, stores
from raypoly.strategies.live_code.library_effects import PURE_NAMES, READ_ONLY_METHODS

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_CHANGES = frozenset({"append", "extend", "insert", "pop", "remove", "reverse", "sort", "add", "discard", "clear"})


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


def may_recur(tree: ast.Module) -> bool:
    """Whether a function of the program could be called while it runs; yes unless that is ruled out.

    It is for a program of one function that is not mentioned in it and that nothing leads to: all its names, methods
    and imports are known to give no function of the program's own.
    """
    every = nodes(tree)
    functions = [node for node in every if isinstance(node, _FUNCTIONS)]
    if len(functions) != 1 or functions[0] not in tree.body or not isinstance(functions[0], ast.FunctionDef):
        return True
    function = functions[0]
    own = bound_here(tree.body) | bound_here(function.body) | parameters(function.args)
    own |= stores(part.target for part in every if isinstance(part, ast.comprehension))
    known = (PURE_NAMES | own) - {function.name}
    return not all(_leads_nowhere(node, known) for node in every) or bool(function.decorator_list)


@lru_cache(maxsize=16)
def may_call(prelude: str) -> bool:
    """Whether a prelude might call a program's functions: all that do more than import what is known not to."""
    return not all(isinstance(stmt, ast.ImportFrom) and _leads_nowhere(stmt, set()) for stmt in ast.parse(prelude).body)


def _leads_nowhere(node: ast.AST, known: Set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, ast.Attribute):
        return node.attr in READ_ONLY_METHODS or node.attr in _CHANGES
    if isinstance(node, ast.ImportFrom):
        return all(alias.name in PURE_NAMES and alias.asname in (None, alias.name) for alias in node.names)
    # a pattern of a class reads any attribute, as `case object(gi_frame=frame)`
    return not isinstance(node, (ast.Import, ast.Global, ast.Nonlocal, ast.MatchClass))


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
