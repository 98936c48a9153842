"""Where a list's order matters: reordering what is only counted, summed or sorted next does nothing.

h = nums[:]
heapify(h)        # goes: whatever the order, `sorted` gives the same
h = sorted(h)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raypoly.strategies.live_code.bindings import nodes, parameters
from raypoly.strategies.live_code.library_effects import (
    CHANGES_FIRST,
    CHANGING_METHODS,
    COPIES,
    ORDER_BLIND,
    READ_ONLY_METHODS,
    READS_ONLY,
    library_name,
)

ORDER_MARK = "!"
"""After a live name: the order of its items is live as well."""
_FRESH = (ast.List, ast.ListComp, ast.BinOp)


def is_reordering(stmt: ast.stmt) -> str:
    """The list whose items a statement only reorders, else ""."""
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return ""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("sort", "reverse"):
        place: ast.expr | None = call.func.value
    else:
        place = call.args[0] if library_name(call) in ("heapify", "shuffle") and call.args else None
    return place.id if isinstance(place, ast.Name) else ""


@dataclass(frozen=True)
class OrderFacts:
    """A function's own lists, or its parameters, that it reorders and that have no other name."""

    names: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()

    @classmethod
    def read(cls, function: ast.FunctionDef | ast.AsyncFunctionDef) -> OrderFacts:
        inner = nodes(function)
        found = {name for n in inner if isinstance(n, ast.Expr) and (name := is_reordering(n))}
        if not found:
            return cls()
        plain = {id(place) for n in inner for place in _plain_uses(n)}
        given = parameters(function.args)
        for node in inner:
            if isinstance(node, ast.Name) and id(node) not in plain:
                found.discard(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and node is not function:
                found -= {n.id for n in nodes(node) if isinstance(n, ast.Name)}
        return cls(frozenset(found), frozenset(given))

    def read_in_order(self, read: Iterable[str], parts: Iterable[ast.AST]) -> frozenset[str]:
        """Marks of names that the code does more to than call what is blind to order."""
        asked = self.names.intersection(read)
        if not asked:
            return frozenset()
        inner = [n for part in parts for n in nodes(part)]
        blind = {id(n.args[0]) for n in inner if isinstance(n, ast.Call) and is_blind(n)}
        seen = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in blind}
        return frozenset(name + ORDER_MARK for name in asked & seen)

    def may_go(self, stmt: ast.Expr, name: str) -> bool:
        """Whether nobody outside could want the new order: what is sorted may be an answer, a heap is none."""
        return name not in self.given or not isinstance(getattr(stmt.value, "func", None), ast.Attribute)

    def settles(self, stmt: ast.Expr) -> bool:
        """Whether the order before makes no difference to the order after."""
        call = stmt.value
        assert isinstance(call, ast.Call)
        return isinstance(call.func, ast.Attribute) and call.func.attr == "sort" and is_total(call)


def is_total(call: ast.Call) -> bool:
    """Whether it sorts by the items themselves, so that equal ones can't be told apart."""
    return all(word.arg == "reverse" for word in call.keywords)


def is_blind(call: ast.Call) -> bool:
    """Whether it gives the same for the items of its one argument in any order."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name in ORDER_BLIND and len(call.args) == 1 and is_total(call)


def _plain_uses(node: ast.AST) -> Iterator[ast.AST]:
    # names below a node whose list gets no other name by it
    if isinstance(node, ast.Subscript):
        yield node.value
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in READ_ONLY_METHODS | CHANGING_METHODS:
            yield node.func.value
        elif library_name(node) in READS_ONLY:
            yield from node.args
        elif library_name(node) in CHANGES_FIRST:
            yield from node.args[:1]
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield node.iter
    elif isinstance(node, ast.Compare):
        yield from node.comparators
    elif isinstance(node, (ast.While, ast.If)):
        yield node.test
    elif isinstance(node, ast.Return) and node.value is not None:
        yield node.value
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        value, copies = node.value, COPIES
        sliced = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice)
        made = isinstance(value, ast.Call) and (library_name(value) in copies or _is_copy(value))
        if isinstance(value, _FRESH) or sliced or made:
            yield node.targets[0]


def _is_copy(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "copy"
