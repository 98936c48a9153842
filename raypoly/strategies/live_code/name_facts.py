"""What names stand for, and which are surely numbers: facts for `algebra.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.live_code.bindings import alike, nodes, root
from raypoly.strategies.live_code.library_effects import (
    CHANGES_FIRST,
    CHANGING_METHODS,
    PURE_MODULES,
    READ_ONLY_METHODS,
    READS_ONLY,
)

MAKES_NUMBERS = (ast.Sub, ast.FloorDiv, ast.Div, ast.Pow, ast.LShift, ast.RShift)
"""Operators that make numbers, and are given numbers."""
_FIXED = (ast.Constant, ast.Name, ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Compare, ast.Tuple)


class NameFacts:
    """Of one tree, before it is changed."""

    def __init__(self, every: list[ast.AST]) -> None:
        self.definitions: dict[str, ast.expr] = {}
        """Of names bound once, to what never changes after."""
        self.numbers: set[str] = set()
        self.own: set[str] = set()
        """Names that the program binds."""
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
                    self._define(target, node.value)
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                changed.add(root(node) or "")
            elif isinstance(node, ast.While):  # what a loop asks is meant to move
                looped |= {n.id for n in nodes(node.test) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.AugAssign):
                looped.add(root(node.target) or "")
            elif isinstance(node, (ast.For, ast.comprehension)):
                looped |= {n.id for n in nodes(node.target) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.Call):
                changed |= set(_changed(node))
            self._note_numbers(node)
        fixed = {name for name, times in bound.items() if times == 1} - changed - looped
        self.own |= set(bound)
        known = self.definitions
        # what a name stands for must hold wherever it is read: nothing in it may change either
        while wrong := [
            name
            for name, value in known.items()
            if name not in fixed or any(n.id not in fixed and n.id in self.own for n in _names(value))
        ]:
            for name in wrong:
                fixed.discard(name)
                del known[name]

    def _define(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and isinstance(value, _FIXED):
            self.definitions[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._define(one, its)

    def _note_numbers(self, node: ast.AST) -> None:
        # names that are surely numbers, by what is done with them
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, MAKES_NUMBERS) or (isinstance(node.op, ast.Mod) and not is_text(node.left)):
                parts = [node.left, node.right]
            elif isinstance(node.op, ast.Add):
                pairs = ((node.left, node.right), (node.right, node.left))
                parts = [one for one, other in pairs if _is_number(other)]
            elif isinstance(node.op, ast.Mult) and alike(node.left, node.right):
                parts = [node.left]
        elif isinstance(node, ast.AugAssign) and (isinstance(node.op, ast.Sub) or _is_number(node.value)):
            parts = [node.target]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range":
            parts = node.args
        elif isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Constant, ast.Slice)):
            return
        elif isinstance(node, ast.Compare) and any(map(_is_number, node.comparators)):
            parts = [] if isinstance(node.ops[0], (ast.In, ast.NotIn, ast.Eq, ast.NotEq)) else [node.left]
        self.numbers |= {part.id for part in parts if isinstance(part, ast.Name)}


def _names(node: ast.expr) -> list[ast.Name]:
    return [part for part in nodes(node) if isinstance(part, ast.Name)]


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _changed(call: ast.Call) -> Iterator[str]:
    # names whose objects a call may change
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
