"""Settle what always comes to the same: opaque predicates, terms that cancel, orders that nobody asks for.

settle(<if n * n < 0: ...>)     ->  if False: ...
settle(<best + r - r>)          ->  best
settle(<sorted(list(xs))>)      ->  sorted(xs)
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator
from typing import Any

from raypoly.strategies.live_code.algebra import Algebra
from raypoly.strategies.live_code.bindings import Rewriter, nodes
from raypoly.strategies.live_code.item_order import is_blind, is_total
from raypoly.strategies.live_code.stored_values import ANYTHING, Range

_COPIES = frozenset({"list", "tuple"})
_REORDERED = frozenset({"sorted", "reversed"})


def settle(tree: ast.Module, entry: str) -> bool:
    """Whether anything was settled; the tree is changed in place, to be folded then."""
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
        # a plain name is left alone: `range(n)` of an `n` that stays 0 was most likely meant to grow
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
        # the other factor goes with the product, so evaluating it must do nothing
        nothing = isinstance(node.op, ast.Mult) and (zero(node.left) or zero(node.right))
        return self._new(ast.Constant(0), node) if nothing and self.certain.is_plain(node) else node

    def _cancelled(self, node: ast.BinOp) -> ast.expr:
        # `a + r - r` and `a - r + r` as `a`: with a minus in it, it is about numbers
        owner: ast.BinOp | None = None
        inner = node.left
        wanted = ast.Sub if isinstance(node.op, ast.Add) else ast.Add
        # down the chain `a + b + r + c - r`, which hangs to the left, to the term that this one takes back
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


_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}


class CertainTests(Algebra):
    """Tests that always come to one value, by the algebra of a program."""

    def truth(self, test: ast.expr) -> bool | None:
        """What a test always comes to; None where it depends on something, or asking does something."""
        if isinstance(test, ast.Constant):
            return bool(test.value)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand)
            return None if inner is None else not inner
        if not self.is_plain(test):
            return None
        if isinstance(test, ast.BoolOp):
            return self._joined(test)
        if isinstance(test, ast.Compare):
            links = list(_links(test))
            found = [self._compare(*link) for link in links]
            if False in found:
                return False
            # `0 < x < 0`: each link may hold, both can not
            if len(links) > 1 and self._exclude_each_other(links):
                return False
            return True if all(found) else None
        if isinstance(test, ast.Call) and (inner := self._of_all(test)) is not None:
            return inner
        values = self.remainders(test)
        if values is not None and (0 not in values or values == {0}):
            return 0 not in values
        low, high = self.ranges.of(test)
        if low > 0 or high < 0:
            return True
        if low == high == 0 or self.difference(test, ast.Constant(0)) == 0:
            return False
        value = self.meaning(test)
        return bool(value.value) if isinstance(value, ast.Constant) else None

    def _of_all(self, call: ast.Call) -> bool | None:
        # `any(x != x for x in xs)` is false, `all(x == x for x in xs)` true, whatever they go over
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in ("any", "all") or len(call.args) != 1 or not isinstance(call.args[0], ast.GeneratorExp):
            return None
        found = self.truth(call.args[0].elt)
        return found if found is (name == "all") else None

    def is_zero(self, node: ast.expr) -> bool:
        """Whether a value is 0, whatever the input, and nothing but a value."""
        if isinstance(node, ast.Constant):
            return type(node.value) is int and node.value == 0
        if isinstance(node, (ast.List, ast.ListComp, ast.JoinedStr)) or not self.is_plain(node):
            return False
        return self.ranges.of(node) == (0, 0) or (isinstance(node, ast.BinOp) and self.difference(node, None) == 0)

    def never_above(self, node: ast.expr, limit: int) -> bool:
        if not self.is_plain(node):
            return False
        difference = self.difference(node, ast.Constant(limit))
        return self.ranges.of(node)[1] <= limit or (difference is not None and difference <= 0)

    def _joined(self, test: ast.BoolOp) -> bool | None:
        both = isinstance(test.op, ast.And)
        found = [self.truth(value) for value in test.values]
        if (not both) in found:
            return not both
        if all(value is both for value in found):
            return both
        # `or` is the negation of `and` of the negated: it is always true where those exclude each other
        links: list[tuple[ast.expr, ast.cmpop, ast.expr]] = []
        for value in test.values:
            plain, negated = _without_not(value)
            if isinstance(plain, ast.Compare) and len(plain.ops) == 1:
                op = plain.ops[0]
                op = _NEGATED[type(op)]() if negated is both else op
                links.append((plain.left, op, plain.comparators[0]))
            elif isinstance(plain, ast.Compare) and both and not negated:
                links.extend(_links(plain))
            else:
                links.append((plain, (ast.IsNot if negated is both else ast.Is)(), ast.Constant("true")))
        return (not both) if self._exclude_each_other(links) else None

    def _exclude_each_other(self, links: list[tuple[ast.expr, ast.cmpop, ast.expr]]) -> bool:
        # whether some conditions can't hold at once: nothing between bounds of one value, or one and its contrary
        bounds: dict[Hashable, Range] = {}
        said: set[tuple[Hashable, type[ast.cmpop], Hashable]] = set()
        for left, op, right in links:
            if isinstance(left, ast.Constant) and type(op) in _MIRRORED:
                left, op, right = right, _MIRRORED[type(op)](), left
            one, other = self.spelled(left), self.spelled(right)
            turned = _MIRRORED.get(type(op), type(op))
            if (one, _NEGATED[type(op)], other) in said or (other, _NEGATED[turned], one) in said:
                return True
            if isinstance(op, (ast.Lt, ast.Gt)) and ((one, turned, other) in said or (other, type(op), one) in said):
                return True
            said.add((one, type(op), other))
            limit = self.meaning(right)
            if isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)):
                value = limit.value
                low, high = bounds.get(one, ANYTHING)
                if isinstance(op, (ast.Gt, ast.GtE, ast.Eq)):
                    # a strict bound is one a little further on: `x > 3 and x < 3` leaves nothing, `x >= 3 and x <= 3`
                    # leaves 3
                    low = max(low, value + (1e-9 if isinstance(op, ast.Gt) else 0))
                if isinstance(op, (ast.Lt, ast.LtE, ast.Eq)):
                    high = min(high, value - (1e-9 if isinstance(op, ast.Lt) else 0))
                bounds[one] = (low, high)
                if low > high:
                    return True
        return False

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
        if isinstance(op, (ast.In, ast.NotIn)):
            inside = self._among(left, right)
            return None if inside is None else inside is isinstance(op, ast.In)
        known = isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
        if not known and self.spelled(left) == self.spelled(right) and not isinstance(left, ast.Constant):
            # two calls that are spelled alike give equal values, and not the same object
            same = not isinstance(op, (ast.Is, ast.IsNot)) or isinstance(left, ast.Name)
            return isinstance(op, (ast.Eq, ast.LtE, ast.GtE, ast.Is)) if same else None
        one, other = self.meaning(left), self.meaning(right)
        if isinstance(one, ast.Constant) and isinstance(other, ast.Constant) and isinstance(op, (ast.Eq, ast.NotEq)):
            return (one.value == other.value) is isinstance(op, ast.Eq)
        if isinstance(op, (ast.Is, ast.IsNot)):
            return None
        if isinstance(op, (ast.Eq, ast.NotEq)) and self.never_equal(left, right):
            return isinstance(op, ast.NotEq)
        values = self.remainders(left)
        limit = self.meaning(right)
        if values is not None and isinstance(limit, ast.Constant) and isinstance(limit.value, int):
            said = {_decided(op, value - limit.value, value - limit.value) for value in values}
            return said.pop() if len(said) == 1 else None
        return _decided(op, *self.apart(left, right))

    def _among(self, left: ast.expr, right: ast.expr) -> bool | None:
        # whether a value is always, or never, one of those written out
        items = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else None
        if items is None or not all(isinstance(item, ast.Constant) and type(item.value) is int for item in items):
            return None
        allowed = {item.value for item in items if isinstance(item, ast.Constant)}
        low, high = self.ranges.of(left)
        values = self.remainders(left)
        if values is None and 0 <= high - low < 64:
            values = set(range(int(low), int(high) + 1))
        if values is None:
            return None
        return True if values <= allowed else False if values.isdisjoint(allowed) else None


def _links(test: ast.Compare) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    # `a < b < c` as `a < b` and `b < c`
    sides = [test.left, *test.comparators]
    yield from zip(sides, test.ops, sides[1:], strict=False)


def _without_not(test: ast.expr) -> tuple[ast.expr, bool]:
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, negated = test.operand, not negated
    return test, negated


def _decided(op: ast.cmpop, low: float, high: float) -> bool | None:
    # what a comparison comes to, if the left side less the right one lies between these
    if isinstance(op, (ast.Gt, ast.LtE)):
        found = True if low > 0 else False if high <= 0 else None
    elif isinstance(op, (ast.Lt, ast.GtE)):
        found = True if high < 0 else False if low >= 0 else None
    else:
        found = False if low > 0 or high < 0 else True if low == high == 0 else None
    return found if found is None or isinstance(op, (ast.Gt, ast.Lt, ast.Eq)) else not found
