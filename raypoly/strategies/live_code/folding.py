"""Fold what a parser can decide: constant tests, annotations, docstrings.

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
