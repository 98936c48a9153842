"""What a test always comes to, where simple algebra can tell: opaque predicates.

    CertainTests(nodes(tree)).truth(<n * n < 0>)      ->  False
    CertainTests(nodes(tree)).truth(<(n * n + n) % 2 == 1>)      ->  False

It knows ranges (`value_ranges.py`), the difference of two sides as a polynomial, remainders, what sorting and counting
can't change, and conditions on one value that exclude each other. A name that is bound once, to what never changes
after, stands for that. Operands are taken to be numbers only where something in the program says so: `s + t` and
`t + s` are two texts.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator
from itertools import product
from math import gcd, inf

from raypoly.strategies.live_code.bindings import nodes, root
from raypoly.strategies.live_code.library_effects import (
    CHANGES_FIRST,
    CHANGING_METHODS,
    PURE_MODULES,
    READ_ONLY_METHODS,
    READS_ONLY,
)
from raypoly.strategies.live_code.value_ranges import ANYTHING, Range, ValueRanges

_MOST_TERMS = 24
_MOST_REMAINDERS = 4096
_DEPTH = 6
_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
_SAME_LENGTH = frozenset({"sorted", "list", "tuple", "reversed", "deque"})
_FEWER = frozenset({"set", "frozenset", "Counter", "dict"})
_MAKES_NUMBERS = (ast.Sub, ast.FloorDiv, ast.Div, ast.Pow, ast.LShift, ast.RShift)
_FIXED = (ast.Constant, ast.Name, ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Compare, ast.Tuple)
Terms = dict[tuple[Hashable, ...], int]
"""A polynomial: factors of each term, in order, and its coefficient."""


class CertainTests:
    """Of one program, before anything of it is changed."""

    def __init__(self, every: list[ast.AST]) -> None:
        self.ranges = ValueRanges(every)
        self._definitions: dict[str, ast.expr] = {}
        self._numbers: set[str] = set()
        self.own: set[str] = set()
        self._spelled: dict[int, tuple[ast.AST, Hashable]] = {}
        self._read(every)

    def _read(self, every: list[ast.AST]) -> None:
        bound: dict[str, int] = {}
        changed: set[str] = set()
        looped: set[str] = set()
        for node in every:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound[node.id] = bound.get(node.id, 0) + 1
            elif isinstance(node, ast.arg):
                bound[node.arg] = bound.get(node.arg, 0) + 1
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                bound[node.name] = bound.get(node.name, 0) + 2
                self.own.add(node.name)
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                bound.update({name: bound.get(name, 0) + 2 for name in node.names})
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and isinstance(node.value, _FIXED):
                        self._definitions[target.id] = node.value
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                changed.add(root(node) or "")
            elif isinstance(node, ast.AugAssign):
                looped.add(root(node.target) or "")
            elif isinstance(node, (ast.For, ast.comprehension)):
                looped |= {n.id for n in nodes(node.target) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.Call):
                changed |= set(_changed(node))
            self._note_numbers(node)
        fixed = {name for name, times in bound.items() if times == 1} - changed - looped
        self.own |= set(bound)
        known = self._definitions
        # what a name stands for must hold wherever it is read: nothing in it may change either
        while wrong := [
            name
            for name, value in known.items()
            if name not in fixed or any(n.id not in fixed and n.id in self.own for n in _names(value))
        ]:
            for name in wrong:
                fixed.discard(name)
                del known[name]

    def _note_numbers(self, node: ast.AST) -> None:
        """Names that are surely numbers, by what is done with them."""
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, _MAKES_NUMBERS) or (isinstance(node.op, ast.Mod) and not _is_text(node.left)):
                parts = [node.left, node.right]
            elif isinstance(node.op, ast.Add):
                pairs = ((node.left, node.right), (node.right, node.left))
                parts = [one for one, other in pairs if _is_number(other)]
            elif isinstance(node.op, ast.Mult) and ast.dump(node.left) == ast.dump(node.right):
                parts = [node.left]
        elif isinstance(node, ast.AugAssign) and (isinstance(node.op, ast.Sub) or _is_number(node.value)):
            parts = [node.target]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range":
            parts = node.args
        elif isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Constant, ast.Slice)):
            return
        elif isinstance(node, ast.Compare) and any(map(_is_number, node.comparators)):
            parts = [] if isinstance(node.ops[0], (ast.In, ast.NotIn, ast.Eq, ast.NotEq)) else [node.left]
        self._numbers |= {part.id for part in parts if isinstance(part, ast.Name)}

    # what is asked

    def truth(self, test: ast.expr) -> bool | None:
        """What a test always comes to; None where it depends on something, or where asking does something."""
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
            if len(links) > 1 and self._exclude_each_other(links):
                return False
            return True if all(found) else None
        low, high = self.ranges.of(test)
        if low > 0 or high < 0:
            return True
        if low == high == 0 or self._difference(test, ast.Constant(0)) == 0:
            return False
        value = self._meaning(test)
        return bool(value.value) if isinstance(value, ast.Constant) else None

    def is_zero(self, node: ast.expr) -> bool:
        """Whether a value is 0, whatever the input, and nothing but a value."""
        if isinstance(node, ast.Constant):
            return type(node.value) is int and node.value == 0
        if isinstance(node, (ast.Name, ast.List, ast.ListComp, ast.JoinedStr)) or not self.is_plain(node):
            return False
        return self.ranges.of(node) == (0, 0) or (isinstance(node, ast.BinOp) and self._difference(node, None) == 0)

    def never_above(self, node: ast.expr, limit: int) -> bool:
        """Whether a value is never above a limit."""
        if not self.is_plain(node):
            return False
        difference = self._difference(node, ast.Constant(limit))
        return self.ranges.of(node)[1] <= limit or (difference is not None and difference <= 0)

    def is_plain(self, node: ast.expr) -> bool:
        """Whether evaluating does nothing and gives the same twice."""
        for part in nodes(node):
            if isinstance(part, ast.Call):
                name = part.func.id if isinstance(part.func, ast.Name) else ""
                method = part.func.attr if isinstance(part.func, ast.Attribute) else ""
                known = (name in READS_ONLY and name not in self.own) or method in READ_ONLY_METHODS
                module = isinstance(part.func, ast.Attribute) and root(part.func) in PURE_MODULES
                helper = self.ranges.of(part) != ANYTHING
                if not (known or module or helper) or name in ("iter", "print", "next"):
                    return False
            elif isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda)):
                return False
        return True

    # conditions

    def _joined(self, test: ast.BoolOp) -> bool | None:
        both = isinstance(test.op, ast.And)
        found = [self.truth(value) for value in test.values]
        if (not both) in found:
            return not both
        if all(value is both for value in found):
            return both
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
        """Whether some conditions can't hold at once: bounds of one value with nothing between, one and its contrary."""
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
            limit = self._meaning(right)
            if isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)):
                value = limit.value
                low, high = bounds.get(one, ANYTHING)
                if isinstance(op, (ast.Gt, ast.GtE, ast.Eq)):
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
            same = not isinstance(op, (ast.Is, ast.IsNot)) or isinstance(left, ast.Name)
            return isinstance(op, (ast.Eq, ast.LtE, ast.GtE, ast.Is)) if same else None
        if isinstance(op, (ast.Is, ast.IsNot)):
            return None
        terms = self._numeric_terms(left, right)
        if terms is not None and _never_zero(terms) and isinstance(op, (ast.Eq, ast.NotEq)):
            return isinstance(op, ast.NotEq)
        values = self._remainders(left)
        limit = self._meaning(right)
        if values is not None and isinstance(limit, ast.Constant) and isinstance(limit.value, int):
            said = {_holds(value, op, limit.value) for value in values}
            return said.pop() if len(said) == 1 else None
        return _decided(op, *self._apart(left, right))

    def _apart(self, left: ast.expr, right: ast.expr) -> Range:
        """Between what the left side less the right one lies."""
        (a, b), (c, d) = self.ranges.of(left), self.ranges.of(right)
        low, high = (a - d if a > -inf and d < inf else -inf), (b - c if b < inf and c > -inf else inf)
        constant = self._difference(left, right)
        if constant is not None:
            return constant, constant
        terms = self._numeric_terms(left, right)
        if terms is not None:
            bounds = [self._term_range(factors, times) for factors, times in terms.items()]
            low, high = max(low, sum(one for one, _ in bounds)), min(high, sum(other for _, other in bounds))
        if self._at_most(left, right):
            high = min(high, 0)
        if self._at_most(right, left):
            low = max(low, 0)
        return low, high

    def _among(self, left: ast.expr, right: ast.expr) -> bool | None:
        """Whether a value is always, or never, one of those written out."""
        items = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else None
        if items is None or not all(isinstance(item, ast.Constant) and type(item.value) is int for item in items):
            return None
        allowed = {item.value for item in items if isinstance(item, ast.Constant)}
        low, high = self.ranges.of(left)
        values = self._remainders(left)
        if values is None and 0 <= high - low < 64:
            values = set(range(int(low), int(high) + 1))
        if values is None:
            return None
        return True if values <= allowed else False if values.isdisjoint(allowed) else None

    # algebra

    def _meaning(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """What a name stands for, if it is bound once to what does not change."""
        while isinstance(node, ast.Name) and node.id in self._definitions and depth < _DEPTH:
            node, depth = self._definitions[node.id], depth + 1
        return node

    def spelled(self, node: ast.AST, depth: int = 0) -> Hashable:
        """What two pieces of code share if they are the same value, names replaced by what they stand for."""
        if isinstance(node, ast.expr):
            node = self._meaning(node, depth)
        if depth > 3 * _DEPTH:
            return id(node)
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Constant):
            return ("constant", type(node.value).__name__, repr(node.value))
        fields = ((name, getattr(node, name, None)) for name in node._fields if name != "ctx")
        return (type(node).__name__, *(self._spelled_field(value, depth + 1) for _, value in fields))

    def _spelled_field(self, value: object, depth: int) -> Hashable:
        if isinstance(value, ast.AST):
            return self.spelled(value, depth)
        return tuple(self._spelled_field(item, depth) for item in value) if isinstance(value, list) else repr(value)

    def _terms(self, node: ast.expr, atoms: dict[Hashable, ast.expr], depth: int = 0) -> Terms | None:
        """The polynomial that an expression is in what it can't take apart, which goes into `atoms`."""
        node = self._meaning(node, depth)
        if depth > _DEPTH:
            return None
        if isinstance(node, ast.Constant):
            whole = isinstance(node.value, int) and abs(node.value) < 10**9
            return ({(): int(node.value)} if node.value else {}) if whole else None  # type: ignore[arg-type]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._terms(node.operand, atoms, depth + 1)
            return None if inner is None else {factors: -times for factors, times in inner.items()}
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            left, right = (self._terms(side, atoms, depth + 1) for side in (node.left, node.right))
            return None if left is None or right is None else _combined(node.op, left, right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
            if node.right.value in (2, 3):
                base = self._terms(node.left, atoms, depth + 1)
                square = None if base is None else _combined(ast.Mult(), base, base)
                return square if square is None or node.right.value == 2 else _combined(ast.Mult(), square, base or {})
        name = ("atom", self.spelled(node))
        atoms[name] = node
        return {(name,): 1}

    def _numeric_terms(self, left: ast.expr, right: ast.expr | None) -> Terms | None:
        """The difference of two sides, if all that it is made of is surely numbers."""
        atoms: dict[Hashable, ast.expr] = {}
        terms = self._terms(left, atoms)
        other = {} if right is None else self._terms(right, atoms)
        if terms is None or other is None or not all(map(self._is_numeric, atoms.values())):
            return None
        self._atoms = atoms
        return _combined(ast.Sub(), terms, other)

    def _difference(self, left: ast.expr, right: ast.expr | None) -> int | None:
        terms = self._numeric_terms(left, right)
        if terms is None or any(terms.keys() - {()}):
            return None
        return terms.get((), 0)

    def _is_numeric(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._numbers or self.ranges.of(node) != ANYTHING
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, _MAKES_NUMBERS) or (isinstance(node.op, ast.Mod) and not _is_text(node.left))
        return isinstance(node, ast.Call) and self.ranges.of(node) != ANYTHING

    def _term_range(self, factors: tuple[Hashable, ...], times: int) -> Range:
        low, high = 1.0, 1.0
        for name in set(factors):
            a, b = self.ranges.of(self._atoms[name])
            even = factors.count(name) % 2 == 0
            if even:
                a, b = 0.0, inf
            elif factors.count(name) > 1:
                a, b = (0.0 if a >= 0 else -inf), inf
            if low < 0 or a < 0:
                return ANYTHING
            low, high = low * a, (high * b if high and b else 0)
        low, high = low * times if low else 0, high * times if high else 0
        return (low, high) if times > 0 else (high, low)

    def _remainders(self, node: ast.expr) -> set[int] | None:
        """All values of `polynomial % m` or `polynomial & 1`."""
        node = self._meaning(node)
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mod, ast.BitAnd)):
            return None
        by = self._meaning(node.right)
        modulus = by.value if isinstance(by, ast.Constant) and type(by.value) is int else 0
        if isinstance(node.op, ast.BitAnd):
            modulus = modulus + 1 if modulus in (1, 3, 7, 15) else 0
        atoms: dict[Hashable, ast.expr] = {}
        terms = self._terms(node.left, atoms)
        plain = all(isinstance(atom, (ast.Name, ast.Subscript)) or self._is_numeric(atom) for atom in atoms.values())
        if terms is None or not plain or modulus < 2 or modulus ** len(atoms) > _MOST_REMAINDERS or len(terms) < 2:
            return None
        names = list(atoms)
        found: set[int] = set()
        for values in product(range(modulus), repeat=len(names)):
            given = dict(zip(names, values, strict=True))
            total = 0
            for factors, times in terms.items():
                for factor in factors:
                    times = times * given[factor] % modulus
                total += times
            found.add(total % modulus)
        return found

    def _at_most(self, left: ast.expr, right: ast.expr) -> bool:
        """Whether one value can't be greater than another for what they are: ends of a sorted list, counts of items."""
        left, right = self._meaning(left), self._meaning(right)
        if isinstance(left, ast.Subscript) and isinstance(right, ast.Subscript):
            ordered = self._meaning(left.value)
            places = [_place(left.slice), _place(right.slice)]
            plain = (
                isinstance(ordered, ast.Call) and getattr(ordered.func, "id", "") == "sorted" and not ordered.keywords
            )
            if not plain or None in places or self.spelled(left.value) != self.spelled(right.value):
                return False
            first, last = places
            assert first is not None and last is not None
            return first <= last if (first < 0) is (last < 0) else (first, last) == (0, -1)
        one, other = _called(left), _called(right)
        if one[0] == "min" and other[0] == "max":
            return self.spelled(one[1]) == self.spelled(other[1])
        if other[0] != "len":
            return False
        if one[0] in ("bisect", "bisect_left", "bisect_right"):
            return self._counted(one[1]) == self._counted(other[1])
        return one[0] == "len" and self._counted(self._inside(one[1], _FEWER)) == self._counted(other[1])

    def _counted(self, node: ast.expr) -> Hashable:
        """What a container has as many items as."""
        return self.spelled(self._inside(node, _SAME_LENGTH))

    def _inside(self, node: ast.expr, kinds: frozenset[str]) -> ast.expr:
        node = self._meaning(node)
        while _called(node)[0] in kinds:
            node = self._meaning(_called(node)[1])
        return node


def _called(node: ast.expr) -> tuple[str, ast.expr]:
    """The function and the first argument of a call by name; an empty name for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return node.func.id, node.args[0]
    return "", node


def _place(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _place(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _links(test: ast.Compare) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """`a < b < c` as `a < b` and `b < c`."""
    sides = [test.left, *test.comparators]
    yield from zip(sides, test.ops, sides[1:], strict=False)


def _without_not(test: ast.expr) -> tuple[ast.expr, bool]:
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, negated = test.operand, not negated
    return test, negated


def _holds(value: int, op: ast.cmpop, limit: int) -> bool | None:
    return _decided(op, value - limit, value - limit)


def _decided(op: ast.cmpop, low: float, high: float) -> bool | None:
    """What a comparison comes to, if the left side less the right one lies between these."""
    if isinstance(op, (ast.Gt, ast.LtE)):
        found = True if low > 0 else False if high <= 0 else None
    elif isinstance(op, (ast.Lt, ast.GtE)):
        found = True if high < 0 else False if low >= 0 else None
    else:
        found = False if low > 0 or high < 0 else True if low == high == 0 else None
    return found if found is None or isinstance(op, (ast.Gt, ast.Lt, ast.Eq)) else not found


def _combined(op: ast.operator, left: Terms, right: Terms) -> Terms | None:
    found: Terms = {}
    if isinstance(op, ast.Mult):
        for (a, x), (b, y) in product(left.items(), right.items()):
            factors = tuple(sorted((*a, *b), key=repr))
            found[factors] = found.get(factors, 0) + x * y
    else:
        sign = -1 if isinstance(op, ast.Sub) else 1
        found = dict(left)
        for factors, times in right.items():
            found[factors] = found.get(factors, 0) + sign * times
    found = {factors: times for factors, times in found.items() if times}
    return found if len(found) <= _MOST_TERMS else None


def _never_zero(terms: Terms) -> bool:
    """Whether a whole number can't be zero: all its terms but the constant one have a factor that this has not."""
    common = gcd(*(times for factors, times in terms.items() if factors))
    return common > 1 and terms.get((), 0) % common != 0


def _names(node: ast.expr) -> list[ast.Name]:
    return [part for part in nodes(node) if isinstance(part, ast.Name)]


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _changed(call: ast.Call) -> Iterator[str]:
    """Names whose objects a call may change."""
    name = getattr(call.func, "id", "")
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in READ_ONLY_METHODS or root(call.func) in PURE_MODULES:
            return
        yield root(call.func.value) or ""
        if call.func.attr in CHANGING_METHODS:
            return
    if name in READS_ONLY:
        return
    for argument in call.args[:1] if name in CHANGES_FIRST else call.args:
        yield root(argument) or ""
