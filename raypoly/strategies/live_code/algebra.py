"""Values as polynomials, remainders and ranges, and which of two can't be the greater.

    algebra.apart(<(n + 1) ** 2>, <n * n + 2 * n>)       ->  (1, 1)
    algebra.remainders(<(n * n + n) % 2>)                ->  {0}

A name bound once, to what never changes after, stands for that. Operands are numbers only where something in the
program says so: `s + t` and `t + s` are two texts.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable
from itertools import product
from math import gcd, inf

from raypoly.strategies.live_code.bindings import nodes, root
from raypoly.strategies.live_code.library_effects import PURE_MODULES, READ_ONLY_METHODS, READS_ONLY
from raypoly.strategies.live_code.name_facts import MAKES_NUMBERS, NameFacts, is_text
from raypoly.strategies.live_code.stored_values import ANYTHING, Range
from raypoly.strategies.live_code.value_ranges import ValueRanges

_MOST_TERMS = 24
_MOST_REMAINDERS = 4096
_DEPTH = 6
_SAME_LENGTH = frozenset({"sorted", "list", "tuple", "reversed", "deque"})
_FEWER = frozenset({"set", "frozenset", "Counter", "dict"})
Terms = dict[tuple[Hashable, ...], int]
"""A polynomial: factors of each term, in order, and its coefficient."""


class Algebra:
    """Of one program, before it is changed."""

    def __init__(self, every: list[ast.AST], entry: str = "") -> None:
        self.ranges = ValueRanges(every, entry)
        self.facts = NameFacts(every)
        self._atoms: dict[Hashable, ast.expr] = {}
        self._spelled: dict[int, tuple[ast.AST, int]] = {}
        self._shapes: dict[Hashable, int] = {}

    def is_plain(self, node: ast.expr) -> bool:
        """Whether evaluating does nothing and gives the same twice."""
        for part in nodes(node):
            if isinstance(part, ast.Call):
                name = part.func.id if isinstance(part.func, ast.Name) else ""
                method = part.func.attr if isinstance(part.func, ast.Attribute) else ""
                known = (name in READS_ONLY and name not in self.facts.own) or method in READ_ONLY_METHODS
                module = isinstance(part.func, ast.Attribute) and root(part.func) in PURE_MODULES
                helper = self.ranges.of(part) != ANYTHING
                if not (known or module or helper) or name in ("iter", "print", "next"):
                    return False
            elif isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda)):
                return False
        return True

    def meaning(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """What a name stands for, if it is bound once to what does not change."""
        while isinstance(node, ast.Name) and node.id in self.facts.definitions and depth < _DEPTH:
            node, depth = self.facts.definitions[node.id], depth + 1
        return node

    def spelled(self, node: ast.AST) -> int:
        """A number that pieces of code share if they are the same value; names are what they stand for."""
        if isinstance(node, ast.expr):
            node = self.meaning(node)
        known = self._spelled.get(id(node))
        if known is None:
            self._spelled[id(node)] = node, -id(node)  # for what stands for itself
            known = self._spelled[id(node)] = node, self._shapes.setdefault(self._shape(node), len(self._shapes))
        return known[1]

    def _shape(self, node: ast.AST) -> Hashable:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Call) and _called(node)[0] == "len":
            return "len", self.spelled(self._inside(node.args[0], _SAME_LENGTH))
        if isinstance(node, ast.Constant):
            return "constant", type(node.value).__name__, repr(node.value)
        return type(node).__name__, *(self._part(getattr(node, name, None)) for name in node._fields if name != "ctx")

    def _part(self, value: object) -> Hashable:
        if isinstance(value, ast.AST):
            return self.spelled(value)
        return tuple(map(self._part, value)) if isinstance(value, list) else repr(value)

    def apart(self, left: ast.expr, right: ast.expr) -> Range:
        """Range of the left side less the right one."""
        (a, b), (c, d) = self.ranges.of(left), self.ranges.of(right)
        low, high = (a - d if a > -inf and d < inf else -inf), (b - c if b < inf and c > -inf else inf)
        constant = self.difference(left, right)
        if constant is not None:
            return constant, constant
        terms = self.numeric_terms(left, right)
        if terms is not None:
            bounds = [self._term_range(factors, times) for factors, times in terms.items()]
            low, high = max(low, sum(one for one, _ in bounds)), min(high, sum(other for _, other in bounds))
        if self._at_most(left, right):
            high = min(high, 0)
        if self._at_most(right, left):
            low = max(low, 0)
        return low, high

    def difference(self, left: ast.expr, right: ast.expr | None) -> int | None:
        terms = self.numeric_terms(left, right)
        if terms is None or any(terms.keys() - {()}):
            return None
        return terms.get((), 0)

    def numeric_terms(self, left: ast.expr, right: ast.expr | None) -> Terms | None:
        """The difference, if all that it is made of is surely numbers."""
        atoms: dict[Hashable, ast.expr] = {}
        terms = self._terms(left, atoms)
        other = {} if right is None else self._terms(right, atoms)
        if terms is None or other is None or not all(map(self._is_numeric, atoms.values())):
            return None
        self._atoms = atoms
        return _combined(ast.Sub(), terms, other)

    def _terms(self, node: ast.expr, atoms: dict[Hashable, ast.expr], depth: int = 0) -> Terms | None:
        # the polynomial that an expression is in what it can't take apart, which goes into `atoms`
        node = self.meaning(node, depth)
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
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and _place(node.right) == 2:
            base = self._terms(node.left, atoms, depth + 1)
            return None if base is None else _combined(ast.Mult(), base, base)
        name = ("atom", self.spelled(node))
        atoms[name] = node
        return {(name,): 1}

    def never_equal(self, left: ast.expr, right: ast.expr) -> bool:
        """Whether they can't be one whole number: all terms but a constant have a factor that this has not."""
        terms, other = self._terms(left, {}), self._terms(right, {})
        apart = None if terms is None or other is None else _combined(ast.Sub(), terms, other)
        if not apart:
            return False
        common = gcd(*(times for factors, times in apart.items() if factors))
        return common > 1 and apart.get((), 0) % common != 0

    def _is_numeric(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.facts.numbers or self.ranges.of(node) != ANYTHING
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, MAKES_NUMBERS) or (isinstance(node.op, ast.Mod) and not is_text(node.left))
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

    def remainders(self, node: ast.expr) -> set[int] | None:
        """All values of `polynomial % m` or `polynomial & 1`."""
        node = self.meaning(node)
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mod, ast.BitAnd)):
            return None
        by = self.meaning(node.right)
        modulus = by.value if isinstance(by, ast.Constant) and type(by.value) is int else 0
        if isinstance(node.op, ast.BitAnd):
            modulus = modulus + 1 if modulus in (1, 3, 7, 15) else 0
        atoms: dict[Hashable, ast.expr] = {}
        terms = self._terms(node.left, atoms)
        plain = all(isinstance(atom, (ast.Name, ast.Subscript)) or self._is_numeric(atom) for atom in atoms.values())
        if terms is None or not plain or modulus < 2 or modulus ** len(atoms) > _MOST_REMAINDERS:
            return None
        if len(terms) + max(map(len, terms), default=0) < 3:
            return None  # one name alone has every remainder
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
        # whether one value can't be greater than another for what they are: ends of a sorted list, counts of items
        left, right = self.meaning(left), self.meaning(right)
        if isinstance(left, ast.Subscript) and isinstance(right, ast.Subscript):
            ordered = self.meaning(left.value)
            places = [_place(left.slice), _place(right.slice)]
            plain = (
                isinstance(ordered, ast.Call) and getattr(ordered.func, "id", "") == "sorted" and not ordered.keywords
            )
            if not plain or None in places or self.spelled(left.value) != self.spelled(right.value):
                return False
            first, last = places
            assert first is not None
            assert last is not None
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
        # what a container has as many items as
        return self.spelled(self._inside(node, _SAME_LENGTH))

    def _inside(self, node: ast.expr, kinds: frozenset[str]) -> ast.expr:
        node = self.meaning(node)
        while _called(node)[0] in kinds:
            node = self.meaning(_called(node)[1])
        return node


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


def _called(node: ast.expr) -> tuple[str, ast.expr]:
    # the function and the first argument of a call by name; an empty name for anything else
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return node.func.id, node.args[0]
    return "", node


def _place(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _place(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
