"""Recurrences in a few variables: made from each other, begun anew where they do harm, or kept in the bits of one.

Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.index_moves import pairs
from raypoly.strategies.features.scene import Scene, is_number, key, names
from raypoly.strategies.live_code.bindings import reach
from raypoly.strategies.live_code.constructs import called


def features(scene: Scene) -> Iterator[str]:
    """`dp`."""
    for node in scene.nodes:
        if isinstance(node, (ast.Assign, ast.AugAssign)) and scene.loops(node) and _shifts_itself(node):
            yield "dp"
        if isinstance(node, (ast.For, ast.While)) and (_turns_on_itself(node) or _begins_anew(node)):
            yield "dp"


def _shifts_itself(node: ast.Assign | ast.AugAssign) -> bool:
    """`sums |= sums << x`: a table of truths in the bits of one number."""
    name = key(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    joined = isinstance(node.op if isinstance(node, ast.AugAssign) else getattr(node.value, "op", None), ast.BitOr)
    shifted = [n for n in ast.walk(node.value) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.LShift)]
    return joined and any(key(n.left) == name != "" and not isinstance(n.right, ast.Constant) for n in shifted)


def _begins_anew(loop: ast.For | ast.While) -> bool:
    """Kadane in words: a running sum that is dropped where it does harm, `if here < 0: here = 0`."""
    inner = [n for stmt in loop.body for n in ast.walk(stmt)]
    sums = {name for n in inner for name in _adds_to(n)}
    for node in inner:
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        left, order = node.test.left, isinstance(node.test.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        weighed = {key(left)} if is_number(node.test.comparators[0], 0) else _summed_with(left, node.test)
        for name in (weighed & sums) - {""} if order else ():
            inside = [p for s in (*node.body, *node.orelse) if isinstance(s, ast.Assign) for p in pairs(s)]
            if any(key(target) == name and name not in names(value) for target, value in inside):
                return True
    return False


def _adds_to(node: ast.AST) -> Iterator[str]:
    """The name to which something that is no constant is added."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and not isinstance(node.value, ast.Constant):
        yield key(node.target)
    elif isinstance(node, ast.Assign):
        for target, value in pairs(node):
            if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
                continue
            if key(value.left) == key(target) and not isinstance(value.right, ast.Constant):
                yield key(target)


def _summed_with(left: ast.expr, test: ast.Compare) -> set[str]:
    """`here` of `here + x < x`."""
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add) and key(left.right) == key(test.comparators[0]):
        return {key(left.left)}
    return set()


def _turns_on_itself(loop: ast.For | ast.While) -> bool:
    """Rolling variables: two or more scalars are made from each other in each round, by a choice or a sum of two."""
    made: dict[str, list[ast.expr]] = {}
    for stmt in loop.body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Assign):
                for target, value in pairs(node):
                    if isinstance(target, ast.Name):
                        made.setdefault(target.id, []).append(value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                longer = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
                made.setdefault(node.target.id, []).append(longer)
    feeds = {name: set().union(*(names(value) for value in values)) & set(made) for name, values in made.items()}
    for name, values in made.items():
        ring = {other for other in reach(feeds[name], feeds) if name in reach(feeds[other], feeds)}
        if len(ring) > 1 and any(_chosen_or_summed(value, ring, name) for value in values):
            return True
    return False


def _chosen_or_summed(value: ast.expr, ring: set[str], name: str) -> bool:
    if isinstance(value, ast.Call) and called(value) in ("max", "min"):
        return any(isinstance(arg, (ast.BinOp, ast.Name)) and names(arg) & (ring - {name}) for arg in value.args)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod):
        value = value.left
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return False
    plain = not any(isinstance(part, (ast.Subscript, ast.Call)) for part in ast.walk(value))
    return plain and len(names(value) & ring) > 1
