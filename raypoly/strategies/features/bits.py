"""Bits as such, as masks of subsets, and squaring along them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.scene import Scene, is_call, is_inverted, is_number, is_op, key, names, nodes_in, walk
from raypoly.strategies.live_code.constructs import called

_BITS = (ast.BitXor, ast.BitAnd, ast.BitOr, ast.LShift, ast.RShift)


def features(scene: Scene) -> Iterator[str]:
    """`bits`, `subset_bits`, `halving`."""
    for node in scene.nodes:
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, _BITS) and not _trivial(scene, node):
            yield "bits"
        if "xor" in (getattr(node, "id", ""), getattr(node, "attr", "")):
            yield "bits"
        if isinstance(node, (ast.For, ast.comprehension)) and any(_power_of_two(part) for part in walk(node.iter)):
            within = node if isinstance(node, ast.For) else scene.parent[id(node)]
            if any(_tests_bits(scene, part, names(node.target)) for part in walk(within)):
                yield "subset_bits"
        if isinstance(node, ast.While) and _halves_and_squares(node):
            yield "halving"
        if isinstance(node, ast.AugAssign) and key(node.target) == key(node.value) != "" and scene.loops(node):
            yield "halving"


def _trivial(scene: Scene, node: ast.BinOp | ast.AugAssign) -> bool:
    # parity, halving, sets and midpoints are no bit tricks
    if isinstance(node, ast.AugAssign):
        if isinstance(node.op, ast.RShift):
            return True
        if isinstance(node.op, ast.BitXor):
            return _of_sets(node.value)
        counted = any(_is_int(value) for value in scene.made.get(key(node.target), []))
        return isinstance(node.op, (ast.BitOr, ast.BitAnd)) and not counted and not _numeric(node.value)
    if isinstance(node.op, ast.RShift) and is_number(node.right, 1):
        return True
    if isinstance(node.op, ast.BitAnd) and (is_number(node.right, 1) or is_number(node.left, 1)):
        return not any(is_op(n, ast.LShift, ast.RShift) for n in walk(node))
    if isinstance(node.op, ast.LShift) or _of_sets(node):
        return True
    if isinstance(node.op, (ast.BitOr, ast.BitAnd)):
        counted = any(_is_int(v) for part in (node.left, node.right) for v in scene.made.get(key(part), []))
        return not (counted or _numeric(node.left) or _numeric(node.right))
    return False


def _of_sets(node: ast.AST) -> bool:
    # whether an operand is made of sets
    return any(isinstance(n, (ast.Set, ast.SetComp)) or is_call(n, "set") for n in walk(node))


def _is_int(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _numeric(node: ast.AST) -> bool:
    # whether an operand is surely a number: made by arithmetic or shifts, or written out
    kinds = (ast.Add, ast.Sub, ast.Mult, ast.LShift, ast.RShift)
    return any(is_op(n, *kinds) or _is_int(n) or is_inverted(n) for n in walk(node))


def _tests_bits(scene: Scene, node: ast.AST, masks: set[str]) -> bool:
    # A mask is asked for its bits one by one: `mask >> i & 1`, `mask & 1 << i`, `bin(mask)`, or a helper is
    if isinstance(node, ast.Call):
        own = called(node) in scene.functions or called(node) in ("bin", "format")
        return own and any(names(arg) & masks for arg in node.args)
    return (isinstance(node, ast.JoinedStr) or is_op(node, ast.BitAnd)) and bool(names(node) & masks)


def _power_of_two(node: ast.AST) -> bool:
    if is_op(node, ast.LShift):
        return is_number(node.left, 1) and not isinstance(node.right, ast.Constant)
    return is_op(node, ast.Pow) and is_number(node.left, 2)


def _halves_and_squares(loop: ast.While) -> bool:
    # exponentiation by squaring: one name is halved, another multiplied by itself
    halved = squared = False
    for node in nodes_in(loop.body):
        if isinstance(node, ast.AugAssign):
            halved |= isinstance(node.op, ast.FloorDiv) and is_number(node.value, 2)
            halved |= isinstance(node.op, ast.RShift) and is_number(node.value, 1)
            squared |= isinstance(node.op, ast.Mult) and key(node.target) == key(node.value) != ""
        if isinstance(node, ast.Assign):
            mine, value = key(node.targets[0]), node.value
            if isinstance(value, ast.BinOp) and mine:
                halved |= isinstance(value.op, (ast.FloorDiv, ast.RShift)) and key(value.left) == mine
            squared |= bool(mine) and any(
                (isinstance(n, ast.BinOp) and key(n.left) == key(n.right) == mine)
                or (isinstance(n, ast.Call) and len(n.args) >= 2 and key(n.args[0]) == key(n.args[1]) == mine)
                for n in walk(value)
            )
    return halved and squared
