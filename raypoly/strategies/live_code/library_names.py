"""Library names said in one way: imports go, and `import heapq as q; q.heappush` is `heappush`.

plain_library_names(ast.parse("from collections import deque as line\\nq = line()"))  ->  "q = deque()"
"""

from __future__ import annotations

import ast

from raypoly.strategies.live_code.bindings import nodes, transformed

_KNOWN = frozenset({"heapq", "collections", "bisect", "math", "itertools", "functools", "string", "operator", "copy"})
"""Modules whose names are as well known without theirs."""
_AMBIGUOUS = frozenset({"pow", "copy", "count", "index", "sum", "concat", "merge", "compress", "repeat", "e", "pi"})
"""Names that are also something else: they keep their module."""
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
LIBRARY_MARK = "@"
"""Before a library's name that the program gives to something of its own as well, until that has another."""
_CACHES = frozenset({"cache", "lru_cache"})


def plain_library_names(tree: ast.Module) -> ast.Module:
    """The tree (changed in place) without imports; library names are what a star import gives, else `module.name`."""
    bound = _bound(tree)
    real: dict[str, str] = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                real[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name != "*" and node.module:
                    real[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    real = {name: path for name, path in real.items() if name not in bound}
    return ast.fix_missing_locations(transformed(_Plain(real, bound), tree))


def _bound(tree: ast.Module) -> set[str]:
    """Names that something other than an import binds."""
    every = nodes(tree)
    stored = {n.id for n in every if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    named = {n.name for n in every if isinstance(n, _NAMED) and n.name}
    return stored | named | {n.arg for n in every if isinstance(n, ast.arg)}


class _Plain(ast.NodeTransformer):
    def __init__(self, real: dict[str, str], bound: set[str]) -> None:
        self.real, self.bound = real, bound

    def _import(self, node: ast.Import | ast.ImportFrom) -> ast.AST | None:
        """An import whose name the program also binds itself is left for the slicer to judge."""
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
        self.generic_visit(node)
        return node

    def _named(self, path: str) -> ast.expr:
        """`heapq.heappush` as the name alone where that can't be taken for another."""
        *owners, name = path.split(".")
        if owners and owners[0] in _KNOWN and name not in _AMBIGUOUS:
            return ast.Name(LIBRARY_MARK + name if name in self.bound else name, ast.Load())
        found: ast.expr = ast.Name((owners or [name])[0], ast.Load())
        for part in [*owners, name][1:]:
            found = ast.Attribute(found, part, ast.Load())
        return found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = [self._cached(decorator) for decorator in node.decorator_list]
        return node

    def _cached(self, node: ast.expr) -> ast.expr:
        """Every memo is `@cache`: its size changes no result."""
        made = node.func if isinstance(node, ast.Call) else node
        known = isinstance(made, ast.Name) and made.id in _CACHES and not {"cache", "lru_cache"} & self.bound
        return ast.copy_location(ast.Name("cache", ast.Load()), node) if known else node
