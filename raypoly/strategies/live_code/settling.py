"""Settle what always comes to the same: opaque predicates, terms that cancel, orders that nobody asks for.

settle(<if n * n < 0: ...>)     ->  if False: ...
settle(<best + r - r>)          ->  best
settle(<sorted(list(xs))>)      ->  sorted(xs)
"""

from __future__ import annotations

import ast
from typing import Any

from raypoly.strategies.live_code.bindings import Rewriter, nodes
from raypoly.strategies.live_code.certain_tests import CertainTests
from raypoly.strategies.live_code.item_order import is_blind, is_total

_COPIES = frozenset({"list", "tuple"})
_REORDERED = frozenset({"sorted", "reversed"})


def settle(tree: ast.Module, entry: str) -> bool:
    """Whether anything was settled; the tree is changed in place, and is to be folded then."""
    rewriter = _Settle(CertainTests(nodes(tree), entry))
    rewriter.visit(tree)
    return rewriter.changed


class _Settle(Rewriter):
    def __init__(self, certain: CertainTests) -> None:
        self.certain = certain
        self.changed = False

    def _new(self, node: ast.expr, old: ast.expr) -> ast.expr:
        self.changed = True
        return ast.copy_location(node, old) if isinstance(node, ast.Constant) else node

    def _tested(self, node: Any) -> Any:
        self.below(node)
        node.test = self._test(node.test)
        return node

    visit_If = visit_While = visit_IfExp = visit_Assert = _tested

    def _test(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.Constant):
            return test
        truth = self.certain.truth(test)
        if truth is not None:
            return self._new(ast.Constant(truth), test)
        if isinstance(test, ast.BoolOp):
            test.values = [self._test(value) for value in test.values]
        return test

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.below(node)
        node.ifs = [test for test in map(self._test, node.ifs) if not isinstance(test, ast.Constant) or not test.value]
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self.below(node)
        source = node.iter
        ends = source.args if isinstance(source, ast.Call) and getattr(source.func, "id", "") == "range" else []
        if len(ends) == 1 and not isinstance(ends[0], ast.Name) and self.certain.never_above(ends[0], 0):
            node.iter = self._new(ast.copy_location(ast.Tuple([], ast.Load()), source), source)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.below(node)
        zero = self.certain.is_zero
        if isinstance(node.op, (ast.Add, ast.Sub)):
            if zero(node.right):
                return self._new(node.left, node)
            if isinstance(node.op, ast.Add) and zero(node.left):
                return self._new(node.right, node)
            return self._cancelled(node)
        nothing = isinstance(node.op, ast.Mult) and (zero(node.left) or zero(node.right))
        return self._new(ast.Constant(0), node) if nothing and self.certain.is_plain(node) else node

    def _cancelled(self, node: ast.BinOp) -> ast.expr:
        """`a + r - r` and `a - r + r` as `a`: with a minus in it, it is about numbers."""
        owner: ast.BinOp | None = None
        inner = node.left
        wanted = ast.Sub if isinstance(node.op, ast.Add) else ast.Add
        while isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Add, ast.Sub)):
            alike = isinstance(inner.op, wanted) and self.certain.spelled(inner.right) == self.certain.spelled(
                node.right
            )
            if alike and self.certain.is_plain(node.right):
                if owner is None:
                    return self._new(inner.left, node)
                owner.left = self._new(inner.left, inner)
                return node.left
            owner, inner = inner, inner.left
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """What is blind to order is given the items as they are."""
        self.below(node)
        own = self.certain.facts.own
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        while len(node.args) == 1 and isinstance(view := node.args[0], ast.Call) and isinstance(view.func, ast.Name):
            plain = view.func.id not in own and len(view.args) == 1 and not isinstance(view.args[0], ast.Starred)
            blind = is_blind(node) or (name == "sorted" and view.func.id in _COPIES)
            if name in own or not plain or not blind or name == view.func.id == "len":
                break
            if view.func.id not in _COPIES | _REORDERED or not is_total(view):
                break
            node.args = [self._new(view.args[0], view)]
        return node
