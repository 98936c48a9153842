"""Undress a program: library names spelled one way, without imports, and without the class around its entry method.

plain_library_names(ast.parse("from collections import deque as line\\nq = line()"))  ->  "q = deque()"
unwrap_class(tree, "Solution().pair")      # class Solution: def pair(self, a): ...   ->   def pair(a): ...

Definitions that the entry never comes to are taken away too, as are statements at the top that only try it out.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from raypoly.strategies.live_code.bindings import NAMED, Rewriter, loads, nodes
from raypoly.strategies.live_code.function_facts import Function

# modules whose names are as well known without theirs
_KNOWN = frozenset({"heapq", "collections", "bisect", "math", "itertools", "functools", "string", "operator", "copy"})
# names that are also something else: they keep their module
_AMBIGUOUS = frozenset({"pow", "copy", "count", "index", "sum", "concat", "merge", "compress", "repeat", "e", "pi"})
LIBRARY_MARK = "@"
"""Before a library's name that the program gives to something of its own as well, until that has another."""
_CACHES = frozenset({"cache", "lru_cache"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN_DECORATORS = frozenset({"staticmethod", "cache"})


def plain_library_names(tree: ast.Module) -> ast.Module:
    """The tree (changed in place) without imports; library names are what a star import gives, else `module.name`."""
    bound = _bound(tree)
    real: dict[str, str] = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                real[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name != "*" and node.module:
                    real[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    real = {name: path for name, path in real.items() if name not in bound}
    _Plain(real, bound).visit(tree)
    return tree


def _bound(tree: ast.Module) -> set[str]:
    # names that something other than an import binds
    every = nodes(tree)
    stored = {n.id for n in every if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    named = {n.name for n in every if isinstance(n, NAMED) and n.name}
    return stored | named | {n.arg for n in every if isinstance(n, ast.arg)}


class _Plain(Rewriter):
    def __init__(self, real: dict[str, str], bound: set[str]) -> None:
        self.real, self.bound = real, bound

    def _import(self, node: ast.Import | ast.ImportFrom) -> ast.AST | None:
        # an import whose name the program also binds itself is left for the slicer to judge
        names = {(a.asname or a.name).split(".")[0] for a in node.names}
        return ast.copy_location(ast.Pass(), node) if not names & self.bound else node

    visit_Import = visit_ImportFrom = _import

    def visit_Name(self, node: ast.Name) -> ast.AST:
        path = self.real.get(node.id)
        if path is None or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(self._named(path), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            owner = self.real.get(node.value.id, node.value.id if node.value.id not in self.bound else "")
            if owner in _KNOWN:
                return ast.copy_location(self._named(f"{owner}.{node.attr}"), node)
        self.below(node)
        return node

    def _named(self, path: str) -> ast.expr:
        # `heapq.heappush` as the name alone where that can't be taken for another
        *owners, name = path.split(".")
        if owners and owners[0] in _KNOWN and name not in _AMBIGUOUS:
            return ast.Name(LIBRARY_MARK + name if name in self.bound else name, ast.Load())
        found: ast.expr = ast.Name((owners or [name])[0], ast.Load())
        for part in [*owners, name][1:]:
            found = ast.Attribute(found, part, ast.Load())
        return found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.below(node)
        node.decorator_list = [self._cached(decorator) for decorator in node.decorator_list]
        return node

    def _cached(self, node: ast.expr) -> ast.expr:
        # every memo is `@cache`: its size changes no result
        made = node.func if isinstance(node, ast.Call) else node
        known = isinstance(made, ast.Name) and made.id in _CACHES and not {"cache", "lru_cache"} & self.bound
        return ast.copy_location(ast.Name("cache", ast.Load()), node) if known else node


def drop_unreached(tree: ast.Module, entry_point: str) -> ast.Module:
    """The module (changed in place) without methods that the entry never comes to, even where they call themselves."""
    owner, _, entry = entry_point.partition(".")
    # a base class or a decorator may call any method: such classes stay whole
    classes = [c for c in tree.body if isinstance(c, ast.ClassDef) and not c.bases and not c.decorator_list]
    # where the class itself is what is called, all its methods may be
    classes = [c for c in classes if entry or c.name != owner.split("(")[0]]
    waiting = [m for c in classes for m in c.body if isinstance(m, _FUNCTIONS)]
    if entry and all(m.name != entry for m in waiting):
        return tree  # whatever the program is, its methods are what there is to see
    methods = {id(m) for m in waiting}
    others = [stmt for stmt in tree.body if stmt not in classes]
    used = {entry} | mentioned(others + [stmt for c in classes for stmt in c.body if id(stmt) not in methods])
    kept: set[int] = set()
    # a kept method mentions others, so it is searched again until none is new; `__init__` and the like are called by
    # Python
    while found := [m for m in waiting if id(m) not in kept and (m.name in used or m.name.startswith("__"))]:
        kept |= {id(m) for m in found}
        used |= mentioned(found)
    for node in classes:
        node.body = [stmt for stmt in node.body if id(stmt) not in methods or id(stmt) in kept] or [ast.Pass()]
    return tree


def mentioned(stmts: Sequence[ast.stmt]) -> set[str]:
    """Names and attributes that stand in these statements."""
    found = [node for stmt in stmts for node in nodes(stmt)]
    return {n.attr for n in found if isinstance(n, ast.Attribute)} | {n.id for n in found if isinstance(n, ast.Name)}


def drop_trial_calls(tree: ast.Module) -> ast.Module:
    """The module (changed in place) without `if __name__ == "__main__":` and calls at the top whose result is dropped.

    Only for a program with an entry point: what is printed while it loads is not its answer.
    """
    tree.body = [stmt for stmt in tree.body if not _is_trial(stmt)]
    return tree


def _is_trial(stmt: ast.stmt) -> bool:
    if isinstance(stmt, ast.If):
        return any(isinstance(n, ast.Name) and n.id == "__name__" for n in nodes(stmt.test))
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
                _Open({m.name for m in functions}, handles).visit(tree)
                return tree
    return tree


def _handles(tree: ast.Module, node: ast.ClassDef) -> set[str]:
    # the class's name and the methods' `self`, where the program uses them for nothing but to call methods
    methods = {m.name: m for m in node.body if isinstance(m, _FUNCTIONS)}
    others = {n.id for n in nodes(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    others |= {n.arg for n in nodes(tree) if isinstance(n, ast.arg)}
    others |= {n.name for n in nodes(tree) if isinstance(n, (*_FUNCTIONS, ast.ClassDef)) and n not in methods.values()}
    # a method that becomes a function must not take the name of anything else that the program reads or binds
    free = loads(tree)
    if any(name.startswith("__") or name in others or name in free for name in methods):
        return set()
    handles, firsts = {node.name}, 0
    for method in methods.values():
        decorators = {getattr(d, "id", "?") for d in method.decorator_list}
        if not decorators <= _PLAIN_DECORATORS:
            return set()
        if "staticmethod" not in decorators:
            first = next(iter([*method.args.posonlyargs, *method.args.args]), None)
            if first is None or len(method.args.defaults) >= len(method.args.args) + len(method.args.posonlyargs):
                return set()
            handles.add(first.arg)
            firsts += 1
    # The class may be opened only if each mention of it or of a `self` is a call of a method: as many names as such
    # uses. A parameter of the name of a `self` elsewhere would be another thing, so those are counted too.
    counted = sum(1 for n in nodes(tree) if isinstance(n, ast.Name) and n.id in handles)
    used = sum(1 for n in nodes(tree) if _owner(n, handles, node.name) and getattr(n, "attr", "") in methods)
    bound = sum(1 for n in nodes(tree) if isinstance(n, ast.arg) and n.arg in handles)
    return handles if counted == used and bound == firsts else set()


def _owner(node: ast.AST, handles: set[str], owner: str) -> bool:
    # whether a node is `self.x`, `Solution.x` or `Solution().x`, for reading
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


class _Open(Rewriter):
    def __init__(self, methods: set[str], handles: set[str]) -> None:
        self.methods, self.handles = methods, handles

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = node.value.func if isinstance(node.value, ast.Call) else node.value
        if node.attr in self.methods and isinstance(value, ast.Name) and value.id in self.handles:
            return ast.copy_location(ast.Name(node.attr, ast.Load()), node)
        self.below(node)
        return node
