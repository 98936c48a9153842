"""Settle flags that never change, so that what they switch off is seen to be dead. Standard library only.

settle(ast.parse("debug = False\\nif debug:\\n work()"))  ->  "if False: ..."
"""

from __future__ import annotations

import ast
from collections import Counter

_FLAGS = (bool, int, type(None))


def fold_settled_flags(tree: ast.Module) -> ast.Module:
    """The tree (changed in place) with names that hold one constant for good replaced by it in tests.

    A length is never negative and nothing differs from itself: such tests become constants too.
    """
    settled = _Settle(_flags(tree)).visit(tree)
    assert isinstance(settled, ast.Module)
    return settled


def _flags(tree: ast.Module) -> dict[str, ast.Constant]:
    stored: Counter[str] = Counter()
    values: dict[str, ast.Constant] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stored[node.id] += 1
        elif isinstance(node, ast.arg):
            stored[node.arg] += 2
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            stored.update(node.names + node.names)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            stored[node.target.id] += 1
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) in _FLAGS:
            values.update({t.id: node.value for t in node.targets if isinstance(t, ast.Name)})
    return {name: value for name, value in values.items() if stored[name] == 1}


class _Settle(ast.NodeTransformer):
    def __init__(self, flags: dict[str, ast.Constant]) -> None:
        self.flags = flags

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self._test(node.test)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.test = self._test(node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = self._test(node.test)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1:
            return node
        left, op, right = node.left, node.ops[0], node.comparators[0]
        if _is_length(left) and _is_zero(right) and isinstance(op, ast.Lt):
            return ast.copy_location(ast.Constant(False), node)
        same = isinstance(left, ast.Name) and isinstance(right, ast.Name) and left.id == right.id
        if same and isinstance(op, (ast.NotEq, ast.Lt, ast.Gt, ast.IsNot)):
            return ast.copy_location(ast.Constant(False), node)
        return node

    def _test(self, test: ast.expr) -> ast.expr:
        """A test made of flags and constants alone becomes one."""
        if isinstance(test, ast.Name) and test.id in self.flags:
            return ast.copy_location(ast.Constant(self.flags[test.id].value), test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._test(test.operand)
        if isinstance(test, ast.BoolOp):
            test.values = [self._test(value) for value in test.values]
        if isinstance(test, ast.Compare):
            test.left, test.comparators = self._test(test.left), [self._test(part) for part in test.comparators]
        return test


def _is_length(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0
