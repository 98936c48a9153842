"""How items move inside a list or a matrix: turned round, transposed, along cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from raypoly.strategies.features.index_moves import steps
from raypoly.strategies.features.pieces import same, walk
from raypoly.strategies.features.scene import Scene, indices, is_call, key, pairs


def features(scene: Scene) -> Iterator[str]:
    """`transpose`, `cycle`, `reversed_part`."""
    for node in scene.nodes:
        if isinstance(node, ast.Assign):
            if _crosses(node):
                yield "transpose"
            if _goes_round(scene, node):
                yield "cycle"
            if _turns_a_part(node):
                yield "reversed_part"
        if is_call(node, "zip") and any(isinstance(a, ast.Starred) for a in node.args):
            yield "transpose"
    for loop in scene.both_loops:
        if isinstance(loop, ast.While) and _turns_round(loop):
            yield "reversed_part"
        if _chain(loop.body):
            yield "cycle"


def _crosses(node: ast.Assign) -> bool:
    """`m[i][j], m[j][i] = m[j][i], m[i][j]`."""
    places = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else []
    if len(places) != 2 or not isinstance(node.value, ast.Tuple):
        return False
    first, second = ([key(index) for index in indices(place)] for place in places)
    return len(first) == 2 and bool(first[0]) and first == second[::-1] and first[0] != first[1]


def _goes_round(scene: Scene, node: ast.Assign) -> bool:
    """Three or more places change items at once, or one changes with what is carried: `a[i], held = held, a[i]`."""
    if not isinstance(node.targets[0], ast.Tuple) or not isinstance(node.value, ast.Tuple) or not scene.loops(node):
        return False
    both = pairs(node)
    places = [target for target, _ in both if isinstance(target, ast.Subscript)]
    taken = [value for _, value in both if isinstance(value, ast.Subscript)]
    if len(places) > 2 and len(taken) > 2:
        return True
    carried = {key(target) for target, value in both if isinstance(value, ast.Subscript) and key(target)}
    return any(
        isinstance(target, ast.Subscript) and key(value) in carried and any(same(target, part) for part in taken)
        for target, value in both
    )


def _chain(body: list[ast.stmt]) -> bool:
    """`held = m[a]; m[a] = m[b]; m[b] = m[c]; ...`: each place takes over what the next one held."""
    moved = [s for s in body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Subscript)]
    links = [isinstance(a.value, ast.Subscript) and same(a.value, b.targets[0]) for a, b in pairwise(moved)]
    return sum(links) > 1


def _turns_a_part(node: ast.Assign) -> bool:
    """`a[i:j] = reversed(a[i:j])`, `a[i:j] = a[i:j][::-1]`."""
    place = node.targets[0]
    if not isinstance(place, ast.Subscript) or not isinstance(place.slice, ast.Slice):
        return False
    if place.slice.lower is None and place.slice.upper is None:
        return False
    back = any(is_call(n, "reversed") for n in walk(node.value))
    back |= any(isinstance(n, ast.Slice) and isinstance(n.step, ast.UnaryOp) for n in walk(node.value))
    return back and any(same(part, place.value) for part in walk(node.value))


def _turns_round(loop: ast.While) -> bool:
    """Two indices towards each other that exchange their items in every round."""
    moved = steps(loop.body)
    for stmt in loop.body:
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Tuple):
            places = [t for t, v in pairs(stmt) if isinstance(t, ast.Subscript) and isinstance(v, ast.Subscript)]
            ways = [moved.get(key(place.slice), set()) for place in places]
            if len(ways) == 2 and {1} in ways and {-1} in ways:
                return True
    return False
