"""Rewrite a program so that each construct reports how often it works, or does its work not at all.

The names that are put in (`@each`, `@test` ...) are no identifiers, so no program has one of its own. They add no frame
to those of the program's functions, whose depth a program could count.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType

from raypoly.strategies.live_code.bindings import Comprehension, bound_here, nodes, stores
from raypoly.strategies.live_code.constructs import called, construct_of, may_recur, recursive_functions

FILE = "<candidate>"
_BODIES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Place = tuple[str, int, int]
"""A construct in the source: its kind, line and column."""


@dataclass
class Instrumented:
    """A module to run, and what is in it. A place's number is its index in `places`."""

    tree: ast.Module
    may_recur: bool
    """Whether a function of it could be called while it runs."""
    places: list[Place] = field(default_factory=list)
    loops: dict[int, frozenset[str]] = field(default_factory=dict)
    """Names that a `for` or `while` sets, which reports them where it has no other effect."""

    @cached_property
    def code(self) -> CodeType:
        """The module, compiled. Raises `SyntaxError`."""
        return compile(self.tree, FILE, "exec")


def instrument(
    source: str, bypass: frozenset[str] = frozenset(), recursion_gives: ast.expr | None = None
) -> Instrumented:
    """Parse and rewrite.

    `bypass`: comprehensions, maps and filters of these kinds give what they iterate over, unchanged.
    `recursion_gives`: each recursive call is replaced by this expression.
    """
    tree = ast.parse(source)
    result = Instrumented(tree, may_recur(tree))
    _Rewriter(result, bypass, recursion_gives).visit(tree)
    ast.fix_missing_locations(tree)
    return result


def place_of(node: ast.expr | ast.stmt) -> Place | None:
    """Where a construct stands, the same in a sliced tree and in the whole one; None for what is no construct."""
    name = construct_of(node)
    return None if name is None else (name, node.lineno, node.col_offset)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, result: Instrumented, bypass: frozenset[str], recursion_gives: ast.expr | None) -> None:
        self.result = result
        self.bypass = bypass
        self.recursion_gives = recursion_gives
        self.recursive = recursive_functions(result.tree)
        self.within: list[str] = []
        scopes = [node.body for node in nodes(result.tree) if isinstance(node, _BODIES)]
        every = {name for body in scopes for name in bound_here(body)}
        imported = {
            (alias.asname or alias.name)
            for node in nodes(result.tree)
            if isinstance(node, ast.ImportFrom) and node.module == "functools"
            for alias in node.names
        }
        self.own = every - imported

    def number(self, node: ast.expr | ast.stmt) -> int:
        place = place_of(node)
        assert place is not None
        self.result.places.append(place)
        return len(self.result.places) - 1

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        number = self.number(node)
        report = self._report(node, number, stores([node.target]))
        self.generic_visit(node)
        node.iter = _call("@each", ast.Constant(number), node.iter)
        return [node, *report]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        number = self.number(node)
        report = self._report(node, number, set())
        self.generic_visit(node)
        node.test = _call("@test", ast.Constant(number), node.test)
        return [node, *report]

    def _report(self, node: ast.For | ast.While, number: int, targets: set[str]) -> list[ast.stmt]:
        # A statement after the loop that tells the values it leaves, where names are all that it changes
        inside = [part for stmt in node.body for part in nodes(stmt)]
        other = (ast.Return, ast.Yield, ast.YieldFrom, ast.Raise, ast.Global, ast.Nonlocal, ast.FunctionDef)
        changes = [p for p in inside if isinstance(p, (ast.Subscript, ast.Attribute))]
        if node.orelse or any(isinstance(p, other) for p in inside) or changes:
            return []
        names = self.result.loops[number] = frozenset(stores(node.body) | targets)
        wanted = ast.Tuple([ast.Constant(name) for name in sorted(names)], ast.Load())
        return [ast.copy_location(ast.Expr(_call("@left", ast.Constant(number), _call("@locals"), wanted)), node)]

    def _comprehension(self, node: Comprehension) -> ast.AST:
        construct = construct_of(node)
        if construct in self.bypass and len(node.generators) == 1 and not isinstance(node, ast.DictComp):
            self.generic_visit(node)
            container = {ast.ListComp: "@list", ast.SetComp: "@set", ast.GeneratorExp: "@iter"}[type(node)]
            return ast.copy_location(_call(container, node.generators[0].iter), node)
        number = self.number(node)
        self.generic_visit(node)
        last = node.generators[-1]
        if not last.is_async:
            last.iter = _call("@each", ast.Constant(number), last.iter)
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = called(node)
        if self.recursion_gives is not None and name in self.recursive and set(self.within) & self.recursive:
            return ast.copy_location(copy.copy(self.recursion_gives), node)
        construct = construct_of(node)
        if construct is None or name in self.own or not node.args:
            return self.generic_visit(node)
        if len(node.args) < 2 or any(isinstance(part, ast.Starred) for part in node.args[:2]):
            return self.generic_visit(node)
        number = self.number(node)
        self.generic_visit(node)
        if construct in self.bypass:
            return ast.copy_location(ast.Call(ast.Name("@second", ast.Load()), node.args, node.keywords), node)
        if construct == "reduce":
            initial = ast.Constant(len(node.args) > 2)
            node.args[1] = _call("@folded", ast.Constant(number), node.args[1], initial)
        else:
            node.args[1] = _call("@each", ast.Constant(number), node.args[1])
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.within.append(node.name)
        self.generic_visit(node)
        self.within.pop()
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        named = stores(node.targets) if isinstance(node.value, ast.Lambda) else set()
        self.within.extend(named)
        self.generic_visit(node)
        del self.within[len(self.within) - len(named) :]
        return node


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])
