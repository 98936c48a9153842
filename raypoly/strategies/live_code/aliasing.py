"""Names of a whole program that may stand for the same object, hold it or be held by it.

    sharing = Sharing(ast.parse("rows = []\\nrow = []\\nrows.append(row)"))
    sharing.of("row")       ->  {"row", "rows"}

One class of names a connected group of flows, without direction, scope or time: what is told apart here is surely
apart. `Aliases` knows less of what is held and is told scope by scope.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from raypoly.strategies.live_code.bindings import PURE_NAMES, Aliases, children, nodes, parameters, root, stores

_NUMBERS = (ast.Compare, ast.Constant, ast.JoinedStr)
_ARITHMETIC = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_COUNTS = frozenset({"len", "range", "sum", "int", "ord", "abs", "str", "bool", "isinstance", "float"})


class Sharing(Aliases):
    """Reads a whole module once."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__([])
        every = nodes(tree)
        self._bound = {n.id for n in every if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self._bound |= {n.arg for n in every if isinstance(n, ast.arg)}
        self._functions: dict[str, set[str]] = {}
        for node in every:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._functions.setdefault(node.name, set()).update(parameters(node.args))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in stores(node.targets):
                    self._functions.setdefault(name, set()).update(parameters(node.value.args))
        for node in every:
            self._flow(node)
        groups: dict[str, set[str]] = {}
        for name in list(self._parent):
            groups.setdefault(self._top(name), set()).add(name)
        self._groups = {name: group for group in groups.values() for name in group}

    def of(self, name: str) -> set[str]:
        return self._groups.get(name, {name})

    def _flow(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            self._join(self._owners(node.targets), self._held(node.value))
        elif isinstance(node, ast.AugAssign):
            self._join(self._owners([node.target]), self._held(node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._join(stores([node.target]), self._held(node.iter))
        elif isinstance(node, ast.NamedExpr):
            self._join({node.target.id}, self._held(node.value))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._join(stores([node.optional_vars]), self._held(node.context_expr))
        elif isinstance(node, ast.Match):
            captures = (ast.MatchAs, ast.MatchStar)
            caught = {n.name for case in node.cases for n in nodes(case.pattern) if isinstance(n, captures)}
            self._join({name for name in caught if name}, self._held(node.subject))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = [n.value for n in nodes(node) if isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) and n.value]
            self._join({node.name}, set().union(*map(self._held, given), set()))
        elif isinstance(node, ast.Call):
            self._call(node)

    def _call(self, call: ast.Call) -> None:
        given = set().union(*(self._held(a) for a in [*call.args, *(k.value for k in call.keywords)]), set())
        if isinstance(call.func, ast.Attribute):
            name, owner = call.func.attr, self._held(call.func.value)
        else:
            name, owner = getattr(call.func, "id", ""), self._held(call.func)
            if name in PURE_NAMES and name not in self._functions and name not in self._bound:
                return
        self._join(owner | self._functions.get(name, set()), given)

    def _owners(self, targets: Iterable[ast.expr]) -> set[str]:
        """The names that the targets bind, or whose objects they store into."""
        places = (n for t in targets for n in nodes(t) if isinstance(n, (ast.Subscript, ast.Attribute)))
        return stores(targets) | {name for place in places if (name := root(place)) is not None}

    def _held(self, node: ast.AST) -> set[str]:
        """Names whose object the value may be, hold, or be made of."""
        if isinstance(node, _NUMBERS) or (isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC)):
            return set()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _COUNTS:
            return set()
        if isinstance(node, ast.Name):
            return {node.id} if node.id in self._bound or node.id in self._functions else set()
        return set().union(*(self._held(child) for child in children(node)), set())
