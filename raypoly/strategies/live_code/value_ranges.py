"""Between which numbers a value lies, whatever the input: found from all that is ever stored under a name.

    ranges = ValueRanges(nodes(ast.parse("n = 0\\nfor x in a:\\n n += 1\\nt = [0] * n\\nt[n] = t[n - 1]")))
    ranges.of(<n>)      ->  (0, inf)
    ranges.of(<t[3]>)   ->  (0, 0)

The least ranges that hold under every assignment (`stored_values.py`). Numbers are taken to be whole where they are
divided or masked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from math import inf, isfinite

from raypoly.strategies.live_code.bindings import alike
from raypoly.strategies.live_code.stored_values import ANYTHING, COUNT, ITEMS, RESULT, Range, StoredValues

_TRUTH: Range = (0, 1)
# bounds that move twice move on to one of these, so that the search for them ends
_STEPS = (-inf, -1, 0, 1, inf)
_ROUNDS = 12
_LARGEST = 2.0**40
_RESULTS: dict[str, Range] = {
    **dict.fromkeys(("len", "abs", "gcd", "isqrt", "sqrt", "bisect", "bisect_left", "bisect_right", "count"), COUNT),
    **dict.fromkeys(("bit_length", "bit_count", "factorial", "comb", "perm"), COUNT),
    **dict.fromkeys(("bool", "isinstance", "any", "all", "startswith", "endswith", "isdigit", "isalpha"), _TRUTH),
    **dict.fromkeys(("find", "rfind"), (-1, inf)),
    "ord": (0, 0x10FFFF),
}


class ValueRanges:
    """Of one tree. Solved when first asked."""

    def __init__(self, every: list[ast.AST], entry: str = "") -> None:
        self._every, self._entry = every, entry
        self._cells: dict[str, Range | None] = {}
        self._stored: StoredValues | None = None

    def of(self, node: ast.expr) -> Range:
        """The least and the greatest that an expression can be."""
        if self._stored is None:
            self._solve()
        found = self._range(node)
        return ANYTHING if found is None else found

    def _solve(self) -> None:
        self._stored = StoredValues(self._every, self._entry)
        moved: dict[str, int] = {}
        for _ in range(_ROUNDS):
            changed = False
            for cell, values in self._stored.given.items():
                new = self._join(values)
                old = self._cells.get(cell)
                if new is None or new == old:
                    continue
                if old is not None:
                    new = min(new[0], old[0]), max(new[1], old[1])
                    moved[cell] = moved.get(cell, 0) + 1
                    if new == old:
                        continue
                    # a counter would move by one for ever: from its second move on a bound jumps to the next of
                    # `_STEPS`
                    if moved[cell] > 1:
                        new = _widened(old, new)
                self._cells[cell] = new
                changed = True
            if not changed:
                return
        self._cells = dict.fromkeys(self._cells, ANYTHING)

    def _join(self, values: Iterable[ast.expr | Range]) -> Range | None:
        found: Range | None = None
        for value in values:
            one = value if isinstance(value, tuple) else self._range(value)
            if one is not None:
                found = one if found is None else (min(found[0], one[0]), max(found[1], one[1]))
        return found

    def _range(self, node: ast.expr) -> Range | None:
        # none while nothing is known to reach it
        if isinstance(node, ast.Constant):
            value = node.value
            return (value, value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else ANYTHING
        if isinstance(node, ast.Name):
            return self._cell(node.id)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                return _TRUTH
            inner = self._range(node.operand)
            if inner is None or not isinstance(node.op, ast.USub):
                return ANYTHING if inner else None
            return -inner[1], -inner[0]
        if isinstance(node, ast.Compare):
            return _TRUTH
        if isinstance(node, ast.IfExp):
            return self._join([node.body, node.orelse])
        if isinstance(node, ast.NamedExpr):
            return self._range(node.value)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            owner: ast.expr = node
            while isinstance(owner, ast.Subscript) and not isinstance(owner.slice, ast.Slice):
                owner = owner.value
            return self._cell(owner.id + ITEMS) if isinstance(owner, ast.Name) else ANYTHING
        return self._called(node) if isinstance(node, ast.Call) else ANYTHING

    def _cell(self, name: str) -> Range | None:
        assert self._stored is not None
        if name in self._stored.unknown or name not in self._stored.given:
            return ANYTHING
        return self._cells.get(name)

    def _called(self, call: ast.Call) -> Range | None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        assert self._stored is not None
        if isinstance(call.func, ast.Name) and name + RESULT in self._stored.given:
            return self._cell(name + RESULT)
        if name in self._stored.unknown:
            return ANYTHING
        if name in ("min", "max") and isinstance(call.func, ast.Name) and not call.keywords:
            if len(call.args) == 1:
                return self._items(call.args[0])
            parts = [self._range(arg) for arg in call.args]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts) or not known:
                return None
            choose = min if name == "min" else max
            return choose(part[0] for part in known), choose(part[1] for part in known)
        if name == "sum" and len(call.args) == 1:
            items = self._items(call.args[0])
            return None if items is None else (min(0, items[0] * inf if items[0] else 0), items[1] and inf)
        if name == "int" and call.args:
            inner = self._range(call.args[0])
            return None if inner is None else (inner[0] if inner[0] == -inf else inner[0] // 1, inner[1])
        return _RESULTS.get(name, ANYTHING)

    def _items(self, node: ast.expr) -> Range | None:
        # of what a container holds
        if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp)):
            return self._range(node.elt)
        return self._cell(node.id + ITEMS) if isinstance(node, ast.Name) else ANYTHING

    def _binary(self, node: ast.BinOp) -> Range | None:
        left, right = self._range(node.left), self._range(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, (ast.Mult, ast.BitXor, ast.Sub)) and alike(node.left, node.right):
            return _square(left) if isinstance(node.op, ast.Mult) else (0, 0)
        if isinstance(node.op, (ast.FloorDiv, ast.Add)) and (between := self._between(node)):
            return between
        return _bounded(_arithmetic(node.op, left, right))

    def _between(self, node: ast.BinOp) -> Range | None:
        # of the middle of two names that a loop keeps in order: `(lo + hi) // 2`, `lo + (hi - lo) // 2`
        assert self._stored is not None
        half = node if isinstance(node.op, ast.FloorDiv) else node.right
        if (
            not isinstance(half, ast.BinOp)
            or not isinstance(half.op, ast.FloorDiv)
            or not isinstance(half.left, ast.BinOp)
        ):
            return None
        total = half.left
        if not isinstance(half.right, ast.Constant) or half.right.value != 2:
            return None
        low, high = (total.left, total.right) if half is node else (total.right, total.left)
        if (
            not isinstance(low, ast.Name)
            or not isinstance(high, ast.Name)
            or (low.id, high.id) not in self._stored.ordered
        ):
            return None
        if half is not node and not (isinstance(node.left, ast.Name) and node.left.id == low.id):
            return None
        bounds = self._range(low), self._range(high)
        return None if None in bounds else (bounds[0][0], bounds[1][1])  # type: ignore[index]


def _widened(old: Range, new: Range) -> Range:
    low = old[0] if new[0] == old[0] else max(step for step in _STEPS if step <= new[0])
    high = old[1] if new[1] == old[1] else min(step for step in _STEPS if step >= new[1])
    return low, high


def _square(one: Range) -> Range:
    low = 0.0 if one[0] <= 0 <= one[1] else min(abs(one[0]), abs(one[1])) ** 2
    return _bounded((low, max(abs(one[0]), abs(one[1])) ** 2))


def _bounded(found: Range) -> Range:
    low, high = found
    return (low if abs(low) < _LARGEST else -inf), (high if abs(high) < _LARGEST else inf)


def _times(a: float, b: float) -> float:
    return 0 if not a or not b else a * b


def _arithmetic(op: ast.operator, left: Range, right: Range) -> Range:
    (a, b), (c, d) = left, right
    positive = a >= 0 and c >= 0
    if isinstance(op, ast.Add):
        return a + c, b + d
    if isinstance(op, ast.Sub):
        return a - d, b - c
    if isinstance(op, ast.Mult):
        products = [_times(x, y) for x in (a, b) for y in (c, d)]
        return min(products), max(products)
    if isinstance(op, ast.Mod) and c > 0:
        top = d - 1 if d > 1 else d
        return 0, min(b, top) if a >= 0 else top
    if isinstance(op, (ast.FloorDiv, ast.RShift)) and a >= 0 and c >= 0:
        return 0, b
    if isinstance(op, ast.FloorDiv) and c == d > 0:
        return (a // c if isfinite(a) else a), (b // c if isfinite(b) else b)
    if isinstance(op, ast.Pow) and c == d and c >= 0 and c % 2 == 0:
        return 0, inf
    if isinstance(op, ast.BitAnd) and (a >= 0 or c >= 0):
        return 0, min([high for low, high in (left, right) if low >= 0])
    if isinstance(op, (ast.Pow, ast.LShift, ast.BitOr, ast.BitXor, ast.Div)) and positive:
        return 0, 0 if (a, b) == (c, d) == (0, 0) and isinstance(op, (ast.BitOr, ast.BitXor)) else inf
    return ANYTHING
