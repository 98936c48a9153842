"""Undress a program: library names spelled one way, without imports, and without the class around its entry method.

plain_library_names(ast.parse("from collections import deque as line\\nq = line()"))  ->  "q = deque()"
unwrap_class(tree, "Solution().pair")      # class Solution: def pair(self, a): ...   ->   def pair(a): ...
"""

from __future__ import annotations

import ast

from raypoly.strategies.live_code.bindings import NAMED, Rewriter, loads, nodes
from raypoly.strategies.live_code.sharing import FUNCTIONS, Function

# modules whose names are as well known without theirs
_KNOWN = frozenset({"heapq", "collections", "bisect", "math", "itertools", "functools", "string", "operator", "copy"})
# names that are also something else: they keep their module
_AMBIGUOUS = frozenset({"pow", "copy", "count", "index", "sum", "concat", "merge", "compress", "repeat", "e", "pi"})
LIBRARY_MARK = "@"
"""Before a library's name that the program gives to something of its own as well, until that has another."""
_CACHES = frozenset({"cache", "lru_cache"})
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
        # an import whose name the program also binds itself stays
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


def unwrap_class(tree: ast.Module, entry_point: str) -> ast.Module:
    """The module (changed in place) with the entry's class opened where it keeps no state."""
    owner = entry_point.split("(")[0].split(".")[0]
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef) and node.name == owner and "." in entry_point:
            methods = [stmt for stmt in node.body if not isinstance(stmt, ast.Pass)]
            functions = [m for m in methods if isinstance(m, FUNCTIONS)]
            plain = len(functions) == len(methods) and not node.bases and not node.decorator_list
            if plain and (handles := _handles(tree, node)):
                tree.body[place : place + 1] = [_function(m) for m in functions]
                _Open({m.name for m in functions}, handles).visit(tree)
                return tree
    return tree


def _handles(tree: ast.Module, node: ast.ClassDef) -> set[str]:
    # the class's name and the methods' `self`, where the program uses them for nothing but to call methods
    methods = {m.name: m for m in node.body if isinstance(m, FUNCTIONS)}
    others = {n.id for n in nodes(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    others |= {n.arg for n in nodes(tree) if isinstance(n, ast.arg)}
    others |= {n.name for n in nodes(tree) if isinstance(n, (*FUNCTIONS, ast.ClassDef)) and n not in methods.values()}
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
