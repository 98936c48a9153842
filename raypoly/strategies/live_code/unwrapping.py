"""What every LeetCode program wears and no approach is told by: the class around its method.

    unwrap_class(tree, "Solution().pair")      # class Solution: def pair(self, a): ...   ->   def pair(a): ...

Definitions that the entry never comes to are taken away too, as are statements at the top that only try it out.
"""

from __future__ import annotations

import ast

from raypoly.strategies.live_code.bindings import loads, nodes, transformed
from raypoly.strategies.live_code.function_facts import Function

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN_DECORATORS = frozenset({"staticmethod", "cache"})


def drop_unreached(tree: ast.Module, entry_point: str) -> ast.Module:
    """The module (changed in place) without methods that the entry never comes to, even where they call themselves."""
    owner, _, entry = entry_point.partition(".")
    classes = [c for c in tree.body if isinstance(c, ast.ClassDef) and not c.bases and not c.decorator_list]
    # where the class itself is what is called, all its methods may be
    classes = [c for c in classes if entry or c.name != owner.split("(")[0]]
    waiting = [m for c in classes for m in c.body if isinstance(m, _FUNCTIONS)]
    if entry and all(m.name != entry for m in waiting):
        return tree  # whatever the program is, its methods are what there is to see
    methods = {id(m) for m in waiting}
    others = [stmt for stmt in tree.body if stmt not in classes]
    used = {entry} | _used(others + [stmt for c in classes for stmt in c.body if id(stmt) not in methods])
    kept: set[int] = set()
    while True:
        found = [m for m in waiting if id(m) not in kept and (m.name in used or m.name.startswith("__"))]
        if not found:
            break
        kept |= {id(m) for m in found}
        used |= _used(found)
    for node in classes:
        node.body = [stmt for stmt in node.body if id(stmt) not in methods or id(stmt) in kept] or [ast.Pass()]
    return tree


def _used(stmts: list[ast.stmt] | list[Function]) -> set[str]:
    """Names and attributes that are said in these statements."""
    found = [node for stmt in stmts for node in nodes(stmt)]
    return {n.attr for n in found if isinstance(n, ast.Attribute)} | {n.id for n in found if isinstance(n, ast.Name)}


def drop_trial_calls(tree: ast.Module) -> ast.Module:
    """The module (changed in place) without `if __name__ == "__main__":` and calls at the top whose result is dropped.

    Only for a program with an entry point: what is printed while it loads is not its answer.
    """
    tree.body = [stmt for stmt in tree.body if not _is_guard(stmt) and not _is_trial(stmt)]
    return tree


def _is_guard(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in nodes(stmt.test))


def _is_trial(stmt: ast.stmt) -> bool:
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"


def unwrap_class(tree: ast.Module, entry_point: str) -> ast.Module:
    """The module (changed in place) with the entry's class opened where it keeps no state."""
    owner = entry_point.split("(")[0].split(".")[0]
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef) and node.name == owner and "." in entry_point:
            methods = [stmt for stmt in node.body if not isinstance(stmt, ast.Pass)]
            functions = [m for m in methods if isinstance(m, _FUNCTIONS)]
            plain = len(functions) == len(methods) and not node.bases and not node.decorator_list
            if plain and (handles := _handles(tree, node)):
                tree.body[place : place + 1] = [_function(m) for m in functions]
                return transformed(_Open({m.name for m in functions}, handles), tree)
    return tree


def _handles(tree: ast.Module, node: ast.ClassDef) -> set[str]:
    """The class's name and the methods' `self`, where the program uses them for nothing but to call methods."""
    methods = {m.name: m for m in node.body if isinstance(m, _FUNCTIONS)}
    others = {n.id for n in nodes(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    others |= {n.arg for n in nodes(tree) if isinstance(n, ast.arg)}
    others |= {n.name for n in nodes(tree) if isinstance(n, (*_FUNCTIONS, ast.ClassDef)) and n not in methods.values()}
    free = loads(tree)
    if any(name.startswith("__") or name in others or name in free for name in methods):
        return set()
    handles = {node.name}
    for method in methods.values():
        decorators = {getattr(d, "id", "?") for d in method.decorator_list}
        if not decorators <= _PLAIN_DECORATORS:
            return set()
        if "staticmethod" not in decorators:
            first = next(iter([*method.args.posonlyargs, *method.args.args]), None)
            if first is None or len(method.args.defaults) >= len(method.args.args) + len(method.args.posonlyargs):
                return set()
            handles.add(first.arg)
    counted = sum(1 for n in nodes(tree) if isinstance(n, ast.Name) and n.id in handles)
    used = sum(1 for n in nodes(tree) if _owner(n, handles, node.name) and getattr(n, "attr", "") in methods)
    bound = sum(1 for n in nodes(tree) if isinstance(n, ast.arg) and n.arg in handles)
    firsts = sum(
        1 for m in methods.values() if not any(getattr(d, "id", "") == "staticmethod" for d in m.decorator_list)
    )
    return handles if counted == used and bound == firsts else set()


def _owner(node: ast.AST, handles: set[str], owner: str) -> bool:
    """Whether a node is `self.x`, `Solution.x` or `Solution().x`, for reading."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return False
    value = node.value
    if isinstance(value, ast.Call) and not value.args and not value.keywords:
        return isinstance(value.func, ast.Name) and value.func.id == owner
    return isinstance(value, ast.Name) and value.id in handles


def _function(method: Function) -> Function:
    if not any(getattr(d, "id", "") == "staticmethod" for d in method.decorator_list):
        arguments = method.args.posonlyargs or method.args.args
        del arguments[0]
    method.decorator_list = [d for d in method.decorator_list if getattr(d, "id", "") != "staticmethod"]
    return method


class _Open(ast.NodeTransformer):
    def __init__(self, methods: set[str], handles: set[str]) -> None:
        self.methods, self.handles = methods, handles

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = node.value.func if isinstance(node.value, ast.Call) else node.value
        if node.attr in self.methods and isinstance(value, ast.Name) and value.id in self.handles:
            return ast.copy_location(ast.Name(node.attr, ast.Load()), node)
        self.generic_visit(node)
        return node
