"""Between which numbers a value lies, whatever the input: found from all that is ever stored under a name.

    ranges = ValueRanges(nodes(ast.parse("n = 0\\nfor x in a:\\n n += 1\\nt = [0] * n\\nt[n] = t[n - 1]")))
    ranges.of(<n>)      ->  (0, inf)
    ranges.of(<t[3]>)   ->  (0, 0)

Neither order nor scope counts: all that any assignment in the program gives a name, or stores in what it holds, is
joined. What is not understood may be anything, and so may be what has another name as well. Numbers are taken to be
whole where they are divided or masked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from math import inf, isfinite

from raypoly.strategies.live_code.bindings import root, stores
from raypoly.strategies.live_code.library_effects import CHANGES_FIRST, READ_ONLY_METHODS, READS_ONLY

Range = tuple[float, float]
ANYTHING: Range = (-inf, inf)
_COUNT: Range = (0, inf)
_TRUTH: Range = (0, 1)
_STEPS = (-inf, -1, 0, 1, inf)
"""Bounds that move twice move on to one of these, so that the search for them ends."""
_ROUNDS = 12
_LARGEST = 2.0**40
_RESULTS: dict[str, Range] = {
    **dict.fromkeys(("len", "abs", "gcd", "isqrt", "sqrt", "bisect", "bisect_left", "bisect_right", "count"), _COUNT),
    **dict.fromkeys(("bit_length", "bit_count", "factorial", "comb", "perm"), _COUNT),
    **dict.fromkeys(("bool", "isinstance", "any", "all", "startswith", "endswith", "isdigit", "isalpha"), _TRUTH),
    **dict.fromkeys(("find", "rfind"), (-1, inf)),
    "ord": (0, 0x10FFFF),
}
_ITEMS = "[]"
"""After a name: what a container holds."""
_RESULT = "()"
"""After a name: what a function returns."""
_ADDS = {"append": 0, "appendleft": 0, "add": 0, "insert": 1, "setdefault": 1}
"""Methods that put a value in, and the argument that it is."""
_KEEPS = frozenset({"pop", "popleft", "popitem", "remove", "discard", "clear", "sort", "reverse", "rotate"})
_VIEWS = frozenset({"list", "tuple", "sorted", "reversed", "set", "iter", "deque"})


class ValueRanges:
    """Of one tree. Solved when first asked."""

    def __init__(self, every: list[ast.AST]) -> None:
        self._every = every
        self._cells: dict[str, Range | None] = {}
        self._given: dict[str, list[ast.expr | Range]] | None = None
        self._unknown: set[str] = set()
        self._ordered: set[tuple[str, str]] = set()
        """Names of which a loop says that the first is no greater than the second."""

    def of(self, node: ast.expr) -> Range:
        """The least and the greatest that an expression can be."""
        if self._given is None:
            self._solve()
        found = self._range(node)
        return ANYTHING if found is None else found

    # what is stored where

    def _solve(self) -> None:
        self._given = given = {}
        kept: set[int] = set()
        loads: list[ast.Name] = []
        mutated: set[str] = set()
        views: list[tuple[str, set[str]]] = []
        for node in self._every:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                loads.append(node)
            self._read(node, kept, mutated, views)
        self._unknown |= {name.id + _ITEMS for name in loads if id(name) not in kept}
        self._unknown |= {name + _ITEMS for name, targets in views if targets & mutated}
        moved: dict[str, int] = {}
        for _ in range(_ROUNDS):
            changed = False
            for cell, values in given.items():
                new = self._join(values)
                old = self._cells.get(cell)
                if new is None or new == old:
                    continue
                if old is not None:
                    new = min(new[0], old[0]), max(new[1], old[1])
                    moved[cell] = moved.get(cell, 0) + 1
                    if new == old:
                        continue
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

    def _give(self, cell: str, value: ast.expr | Range) -> None:
        assert self._given is not None
        self._given.setdefault(cell, []).append(value)

    def _read(self, node: ast.AST, kept: set[int], mutated: set[str], views: list[tuple[str, set[str]]]) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
            views += [(name, stores(node.targets)) for name in _iterated(node.value)]
        elif isinstance(node, ast.AugAssign):
            read = ast.Name(node.target.id, ast.Load()) if isinstance(node.target, ast.Name) else node.target
            self._bind(node.target, ast.BinOp(read, node.op, node.value))
        elif isinstance(node, ast.NamedExpr):
            self._bind(node.target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._iterate(node.target, node.iter)
            kept.add(id(node.iter))
            views += [(name, stores([node.target])) for name in _iterated(node.iter)]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._returns(node)
        elif isinstance(node, (ast.arg, ast.Global, ast.Nonlocal, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            names = [node.arg] if isinstance(node, ast.arg) else getattr(node, "names", [getattr(node, "name", "")])
            if not isinstance(node, (ast.Global, ast.Nonlocal)):
                self._unknown |= {part for name in names if name for part in (name, name + _ITEMS)}
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._forget(node.optional_vars)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._unknown |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Subscript):
            kept.add(id(node.value))
            if not isinstance(node.ctx, ast.Load):
                mutated.add(root(node) or "")
        elif isinstance(node, ast.Call):
            self._call(node, kept, mutated)
        elif isinstance(node, (ast.Compare, ast.If, ast.While)):
            kept.update(map(id, node.comparators if isinstance(node, ast.Compare) else [node.test]))
            if isinstance(node, ast.While):
                self._ordered |= _orders(node.test)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._give(target.id, value)
            self._hold(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if len(values) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in (*values, *target.elts)):
                for one, its in zip(target.elts, values, strict=True):
                    self._bind(one, its)
            else:
                self._forget(target)
        elif isinstance(target, ast.Subscript) and (name := root(target)):
            if isinstance(target.slice, ast.Slice) or isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.Dict)):
                self._hold(name, value)
            else:
                self._give(name + _ITEMS, value)
        else:
            self._forget(target)

    def _forget(self, target: ast.expr) -> None:
        self._unknown |= {part for name in stores([target]) for part in (name, name + _ITEMS)}
        self._unknown |= {f"{root(n)}{_ITEMS}" for n in ast.walk(target) if isinstance(n, ast.Subscript)}

    def _hold(self, name: str, value: ast.expr) -> None:
        """What the value holds is now among what the name's object holds."""
        cell = name + _ITEMS
        if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
            for item in value.elts:
                if _is_list(item) or isinstance(item, (ast.Tuple, ast.Set)):
                    self._hold(name, item)
                else:
                    self._give(cell, item)
        elif isinstance(value, ast.Dict):
            for item in value.values:
                self._give(cell, item)
        elif isinstance(value, (ast.ListComp, ast.SetComp)):
            self._hold(name, ast.List([value.elt], ast.Load()))
        elif isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Add)):
            sides = [side for side in (value.left, value.right) if _is_list(side)]
            for side in sides:
                self._hold(name, side)
            if not sides or (isinstance(value.op, ast.Add) and len(sides) < 2):
                self._unknown.add(cell)
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "range":
            self._give(cell, self._of_range(value))
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "defaultdict":
            plain = value.args and isinstance(value.args[0], ast.Name) and value.args[0].id == "int"
            self._give(cell, (0, 0)) if plain else self._unknown.add(cell)
        elif not (isinstance(value, ast.Call) and getattr(value.func, "id", "") in _VIEWS and not value.args):
            self._unknown.add(cell)

    def _iterate(self, target: ast.expr, source: ast.expr) -> None:
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and isinstance(target, ast.Name):
            if source.func.id == "range":
                self._unknown.add(target.id + _ITEMS)
                self._give(target.id, self._of_range(source))
                return
        if isinstance(source, ast.Call) and getattr(source.func, "id", "") == "enumerate":
            if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[0], ast.Name):
                if len(source.args) == 1 and not source.keywords:
                    self._give(target.elts[0].id, _COUNT)
                    self._unknown.add(target.elts[0].id + _ITEMS)
                    self._forget(target.elts[1])
                    return
        self._forget(target)

    def _of_range(self, call: ast.Call) -> ast.expr | Range:
        """What a `range` goes over: from its start on, as far as its step goes up."""
        first: ast.expr = call.args[0] if len(call.args) > 1 else ast.Constant(0)
        step = call.args[2] if len(call.args) > 2 else ast.Constant(1)
        up = isinstance(step, ast.Constant) and isinstance(step.value, int) and step.value > 0
        if not up or not call.args:
            return ANYTHING
        return ast.Call(ast.Name("max", ast.Load()), [first, ast.Constant(inf)], [])  # wherever it ends

    def _returns(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._unknown |= {function.name, function.name + _ITEMS}
        inner = [n for stmt in function.body for n in ast.walk(stmt)]
        nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Yield, ast.YieldFrom)
        last = function.body[-1]
        plain = not function.decorator_list and isinstance(last, ast.Return)
        if not plain or any(isinstance(n, nested) or (isinstance(n, ast.Return) and not n.value) for n in inner):
            self._unknown.add(function.name + _RESULT)
        for node in inner:
            if isinstance(node, ast.Return) and node.value is not None:
                self._give(function.name + _RESULT, node.value)

    def _call(self, call: ast.Call, kept: set[int], mutated: set[str]) -> None:
        if isinstance(call.func, ast.Attribute):
            name, method = root(call.func.value), call.func.attr
            if method in _ADDS and len(call.args) > _ADDS[method]:
                value = call.args[_ADDS[method]]
                self._give(f"{name}{_ITEMS}", value)
                self._hold_inside(f"{name}", value)
            elif method not in _KEEPS and method not in READ_ONLY_METHODS:
                return
            kept.add(id(call.func.value))
            if method not in READ_ONLY_METHODS:
                mutated.add(name or "")
                self._unknown |= {f"{root(arg)}{_ITEMS}" for arg in call.args if isinstance(arg, ast.Subscript)}
        elif isinstance(call.func, ast.Name):
            kept.add(id(call.func))
            if call.func.id in READS_ONLY:
                kept.update(map(id, call.args))
            elif call.func.id in CHANGES_FIRST and call.args:
                kept.add(id(call.args[0]))
                mutated.add(root(call.args[0]) or "")
                for value in call.args[1:]:
                    self._give(f"{root(call.args[0])}{_ITEMS}", value)

    def _hold_inside(self, name: str, value: ast.expr) -> None:
        """A container that is put into another: what it holds is held there too."""
        if isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.Set)):
            self._hold(name, value)

    # what an expression gives

    def _range(self, node: ast.expr) -> Range | None:
        """None while nothing is known to reach it."""
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
            return self._cell(owner.id + _ITEMS) if isinstance(owner, ast.Name) else ANYTHING
        return self._called(node) if isinstance(node, ast.Call) else ANYTHING

    def _cell(self, name: str) -> Range | None:
        if name in self._unknown or not self._given or name not in self._given:
            return ANYTHING
        return self._cells.get(name)

    def _called(self, call: ast.Call) -> Range | None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if isinstance(call.func, ast.Name) and name + _RESULT in (self._given or ()):
            return self._cell(name + _RESULT)
        if name in self._unknown:
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
        """Of what a container holds."""
        if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp)):
            return self._range(node.elt)
        return self._cell(node.id + _ITEMS) if isinstance(node, ast.Name) else ANYTHING

    def _binary(self, node: ast.BinOp) -> Range | None:
        left, right = self._range(node.left), self._range(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, (ast.Mult, ast.BitXor)) and ast.dump(node.left) == ast.dump(node.right):
            return _square(left) if isinstance(node.op, ast.Mult) else (0, 0)
        if isinstance(node.op, (ast.FloorDiv, ast.Add)) and (between := self._between(node)):
            return between
        return _bounded(_arithmetic(node.op, left, right))

    def _between(self, node: ast.BinOp) -> Range | None:
        """Of the middle of two names that a loop keeps in order: `(lo + hi) // 2`, `lo + (hi - lo) // 2`."""
        half = node if isinstance(node.op, ast.FloorDiv) else node.right
        total = half.left if isinstance(half, ast.BinOp) and isinstance(half.op, ast.FloorDiv) else None
        two = isinstance(total, ast.BinOp) and isinstance(half, ast.BinOp) and isinstance(half.right, ast.Constant)
        if not two or half.right.value != 2 or not isinstance(total, ast.BinOp):  # type: ignore[union-attr]
            return None
        low, high = (total.left, total.right) if half is node else (total.right, total.left)
        if not isinstance(low, ast.Name) or not isinstance(high, ast.Name) or (low.id, high.id) not in self._ordered:
            return None
        if half is not node and not (isinstance(node.left, ast.Name) and node.left.id == low.id):
            return None
        bounds = self._range(low), self._range(high)
        return None if None in bounds else (bounds[0][0], bounds[1][1])  # type: ignore[index]


def _orders(test: ast.expr) -> set[tuple[str, str]]:
    """Pairs of names of which a loop's test says that one is no greater than the other."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return set().union(*map(_orders, test.values))
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return set()
    left, right = test.left, test.comparators[0]
    if not isinstance(left, ast.Name) or not isinstance(right, ast.Name):
        return set()
    if isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return {(left.id, right.id)}
    return {(right.id, left.id)} if isinstance(test.ops[0], (ast.Gt, ast.GtE)) else set()


def _is_list(node: ast.expr) -> bool:
    """Whether an expression is a list written out, or lists joined or repeated."""
    if isinstance(node, ast.BinOp):
        return _is_list(node.left) or _is_list(node.right)
    return isinstance(node, (ast.List, ast.ListComp))


def _iterated(source: ast.expr) -> set[str]:
    """Names of containers that a value is made of, or that are gone over."""
    if isinstance(source, ast.Call):
        return set().union(*map(_iterated, source.args))
    if isinstance(source, (ast.ListComp, ast.GeneratorExp)):
        return set().union(*(_iterated(generator.iter) for generator in source.generators))
    name = root(source) if isinstance(source, (ast.Name, ast.Subscript)) else None
    return {name} if name else set()


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
