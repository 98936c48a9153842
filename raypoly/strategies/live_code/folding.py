"""Fold what a parser can decide: constant tests, products with zero, annotations, docstrings.

fold(ast.parse("if 0:\\n g()\\nx: int = 1"))  ->  "x = 1"
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from raypoly.strategies.live_code.bindings import Rewriter

# folded integers stay below this, so that hostile source can't make folding itself expensive
_LARGEST = 10**9
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def fold(tree: ast.Module) -> ast.Module:
    """The tree (changed in place) without constant branches, annotations, docstrings and code after a jump."""
    _Fold().visit(tree)
    return tree


def constant(node: ast.expr) -> object:
    """Value of an expression of constants alone, else None. Raises nothing."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        value = constant(node.operand)
        if isinstance(value, int) and isinstance(node.op, (ast.USub, ast.Not)):
            return -value if isinstance(node.op, ast.USub) else not value
    if isinstance(node, ast.BinOp):
        return _binary(node.op, constant(node.left), constant(node.right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _binary(node.ops[0], constant(node.left), constant(node.comparators[0]))
    return None


def truth(node: ast.expr) -> bool | None:
    """Whether a test is always true or false; None where it depends on something."""
    if isinstance(node, ast.BoolOp):
        parts = [truth(value) for value in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in parts:
            return decisive
        return not decisive if all(part is (not decisive) for part in parts) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = truth(node.operand)
        return None if inner is None else not inner
    if isinstance(node, ast.Constant):
        return bool(node.value)
    value = constant(node)
    return None if value is None else bool(value)


def _binary(op: ast.operator | ast.cmpop, left: object, right: object) -> object:
    if not isinstance(left, int) or not isinstance(right, int) or type(op) not in _OPERATORS:
        return None
    if isinstance(op, ast.operator) and max(abs(left), abs(right)) > _LARGEST:
        return None
    return None if isinstance(op, (ast.FloorDiv, ast.Mod)) and not right else _OPERATORS[type(op)](left, right)


class _Fold(Rewriter):
    def each(self, items: list[Any]) -> list[Any]:
        kept: list[Any] = []
        for new in super().each(items):
            if kept and isinstance(new, ast.Expr) and _sorts_the_copy(kept[-1], new.value):
                continue
            kept.append(new)
            if isinstance(new, _LEAVING):
                break
        return kept

    def visit_If(self, node: ast.If) -> Any:
        decided = truth(node.test)
        if decided is None:
            return self.below(node)
        return self.each(node.body if decided else node.orelse)

    def visit_While(self, node: ast.While) -> Any:
        return self.each(node.orelse) if truth(node.test) is False else self.below(node)

    def visit_For(self, node: ast.For) -> Any:
        return self.each(node.orelse) if _never_iterates(node.iter) else self.below(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        decided = truth(node.test)
        if decided is None:
            return self.below(node)
        folded: ast.AST = self.visit(node.body if decided else node.orelse)
        return folded

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        first = truth(node.values[0])
        if first is None:
            return self.below(node)
        decides = first if isinstance(node.op, ast.Or) else not first
        if decides or len(node.values) == 1:
            folded: ast.AST = self.visit(node.values[0])
            return folded
        node.values = node.values[1:]
        return self.visit_BoolOp(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.below(node)
        left_zero, right_zero = _is_zero(node.left), _is_zero(node.right)
        if isinstance(node.op, ast.Mult) and (left_zero or right_zero):
            return ast.copy_location(ast.Constant(0), node)
        if isinstance(node.op, (ast.Add, ast.Sub)) and right_zero:
            return node.left
        return node.right if isinstance(node.op, ast.Add) and left_zero else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return self.below(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Assign(self, node: ast.Assign) -> Any:
        if any(isinstance(target, ast.Name) and target.id == "__slots__" for target in node.targets):
            return None  # which fields there may be, once more and in words
        return self.below(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        return self.below(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, (ast.Constant, ast.Name)) else self.below(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None


def _sorts_the_copy(made: ast.stmt, call: ast.expr) -> bool:
    # whether the call sorts the copy that the statement before it made; the two are said in that statement then
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "sort":
        return False
    place, value = call.func.value, made.value if isinstance(made, ast.Assign) else None
    target = made.targets[0] if isinstance(made, ast.Assign) else None
    if not isinstance(place, ast.Name) or not isinstance(target, ast.Name) or target.id != place.id:
        return False
    source: ast.expr | None = None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "list":
        source = value.args[0] if len(value.args) == 1 and not isinstance(value.args[0], ast.Starred) else None
    elif isinstance(value, ast.Subscript) and isinstance(cut := value.slice, ast.Slice):
        source = None if cut.lower or cut.upper or cut.step else value.value
    if source is None or not isinstance(made, ast.Assign) or len(made.targets) > 1 or call.args:
        return False
    made.value = ast.copy_location(ast.Call(ast.Name("sorted", ast.Load()), [source], call.keywords), call)
    return True


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0


def _never_iterates(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.List)):
        return not node.elts
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and node.args:
        bounds = [bound for arg in node.args if isinstance(bound := constant(arg), int)]
        if len(bounds) == len(node.args) <= 3:
            start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
            return step != 0 and not range(start, stop, step)
    return False
