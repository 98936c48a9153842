"""Names of a program that may stand for one object, and what changes with an object.

    Sharing(ast.parse("rows = []\\nrow = []\\nrows.append(row)")).changed_with({"row"})   ->  {"row", "rows[]", "rows"}

`a[]` stands for all that is in `a`, `a[][]` for what is in that; a field of `self` is a name of its own. Order plays no
part: what is told apart is apart at all times.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from raypoly.strategies.live_code.bindings import COMPREHENSIONS, children, nodes, parameters, stores
from raypoly.strategies.live_code.library_effects import CHANGES_FIRST, COPIES, FILLS, PLAIN_RESULTS, READS_ONLY

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CAPTURES = (ast.MatchAs, ast.MatchStar)
_NUMBERS = (ast.Compare, ast.Constant, ast.JoinedStr, ast.UnaryOp)
_ARITHMETIC = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_IN, _LEVELS = "[]", 3  # what lies deeper counts as the third level
_Value = tuple[set[str], set[str]]
"""What a value may be, and what it may have in it."""


def within(names: Iterable[str]) -> set[str]:
    return {name if name.endswith(_IN * _LEVELS) else name + _IN for name in names}


class Sharing:
    def __init__(self, tree: ast.Module) -> None:
        every = nodes(tree)
        self.functions: dict[str, list[Function]] = {}
        classes = [node for node in every if isinstance(node, ast.ClassDef)]
        for node in every:
            if isinstance(node, FUNCTIONS):
                self.functions.setdefault(node.name, []).append(node)
        methods = [(one, stmt) for one in classes for stmt in one.body if isinstance(stmt, FUNCTIONS)]
        self.selves = {arg.arg: one.name for one, stmt in methods for arg in stmt.args.args[:1]}
        """Parameters that stand for a method's object, and its class."""
        self.named = frozenset({*self.functions, *(one.name for one in classes)})
        """Functions, methods and classes."""
        bound = {n.id for n in every if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self.own = frozenset({*bound, *self.named, *(n.arg for n in every if isinstance(n, ast.arg))})
        """Names that the program binds: no library's."""
        self._parent: dict[str, str] = {}
        for node in every:
            self._flow(node)
        self._groups: dict[str, set[str]] = {}
        for name in self._parent:
            self._groups.setdefault(self._top(name), set()).add(name)

    def changed_with(self, names: Iterable[str]) -> set[str]:
        """These, and all whose objects change where one of theirs does."""
        found, todo = set[str](), set(names)
        while todo:
            name = todo.pop()
            found.add(name)
            group = self._groups[self._top(name)] if name in self._parent else set()
            todo |= (group | {name.removesuffix(_IN)}) - found
        return found

    def place(self, node: ast.AST) -> set[str]:
        """The object that an expression stands for: `a` of `a`, `a[]` of `a[i].b`, `b` of `self.b`."""
        if isinstance(node, ast.Name):
            return {node.id} - self.named
        if isinstance(node, ast.Attribute):
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id in self.selves:
                return {node.attr}
            return {node.attr} | within(self.place(owner))
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return within(self.place(node.value))
        same, held = self._value(node)
        return same | held

    def is_library(self, call: ast.Call, names: frozenset[str]) -> bool:
        name = getattr(call.func, "id", "")
        return name in names and name not in self.own

    def _flow(self, node: ast.AST) -> None:
        # by what objects get under other names, and into each other
        if isinstance(node, ast.AugAssign):
            same, held = self._value(node.value)
            self._join(within(self.place(node.target)), within(same) | held)
        elif isinstance(node, (ast.Assign, ast.NamedExpr, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._bind(target, node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            same, held = self._value(node.iter)
            self._join(self._targets(node.target), within(same) | held)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, node.context_expr)
        elif isinstance(node, ast.Match):
            caught = {n.name for case in node.cases for n in nodes(case.pattern) if isinstance(n, CAPTURES) and n.name}
            self._join(caught, set().union(*self._value(node.subject)))
        elif isinstance(node, ast.Call):
            self._given(node)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, part in zip(target.elts, value.elts, strict=True):
                self._bind(one, part)
            return
        same, held = self._value(value)
        for name in self._targets(target):
            self._join({name}, within(same) | held if isinstance(target, (ast.Tuple, ast.List)) else same)
            self._join(within({name}), held)

    def _targets(self, target: ast.expr) -> set[str]:
        stored = (n for n in nodes(target) if isinstance(n, (ast.Subscript, ast.Attribute)))
        return stores([target]).union(*(self.place(n) for n in stored if not isinstance(n.ctx, ast.Load)))

    def _given(self, call: ast.Call) -> None:
        given = set().union(*self._values([*call.args, *(keyword.value for keyword in call.keywords)]))
        name = getattr(call.func, "id", "") or getattr(call.func, "attr", "")
        for function in self.functions.get(name, ()):
            self._join(parameters(function.args), given)
        if isinstance(call.func, ast.Attribute) and name in FILLS:
            self._join(within(self.place(call.func.value)), given)
        elif self.is_library(call, CHANGES_FIRST) and call.args:
            self._join(within(self.place(call.args[0])), given - self.place(call.args[0]))

    def _join(self, names: set[str], others: set[str]) -> None:
        every = {*names, *others} if names and others else {""}
        for _ in range(1 + _LEVELS):
            top = self._top(next(iter(every)))
            for name in every:
                self._parent[self._top(name)] = top
            every = within(every)

    def _top(self, name: str) -> str:
        while (parent := self._parent.setdefault(name, name)) != name:
            name = parent
        return name

    def _value(self, node: ast.AST) -> _Value:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return set(), within(self.place(node.value))
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Starred)):
            return self.place(node), set()
        if isinstance(node, ast.Call):
            return self._result(node)
        if isinstance(node, _DISPLAYS):
            return set(), set().union(*self._values(children(node)))
        if isinstance(node, COMPREHENSIONS):
            made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return set(), set().union(*self._values(made))
        if isinstance(node, _NUMBERS) or (isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC)):
            return set(), set()
        parts = children(node)
        if isinstance(node, ast.BinOp):  # a part of something is a number mostly
            parts = [part for part in parts if not isinstance(part, (ast.Subscript, ast.Attribute))]
        same, held = self._values(parts)
        return (set(), within(same) | held) if isinstance(node, ast.BinOp) else (same, held)

    def _values(self, parts: Iterable[ast.AST]) -> _Value:
        found = [self._value(part) for part in parts]
        return set().union(*(one[0] for one in found)), set().union(*(one[1] for one in found))

    def _result(self, call: ast.Call) -> _Value:
        if self.is_library(call, PLAIN_RESULTS):
            return set(), set()
        same, held = self._values([*call.args, *(keyword.value for keyword in call.keywords)])
        if self.is_library(call, COPIES):
            return set(), within(same) | held
        if self.is_library(call, READS_ONLY | CHANGES_FIRST):
            return within(same) | held, set()
        owner = self.place(call.func.value) if isinstance(call.func, ast.Attribute) else set()
        return same | within(owner), held
