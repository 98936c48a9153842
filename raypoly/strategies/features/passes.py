"""Passes over the whole: until nothing changes, or over events in order."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator

from raypoly.strategies.features.scene import Scene, key, names, nodes_in, spelled


def features(scene: Scene) -> Iterator[str]:
    """`fixpoint`, `sweep`."""
    if any(_until_stable(loop) or _compares_with_before(loop) or _replaces(loop) for loop in scene.whiles):
        yield "fixpoint"
    if any(_events(scene, name) for name in sorted(scene.done_to)) or _both_ends(scene):
        yield "sweep"


def _until_stable(loop: ast.While) -> bool:
    # `while changed: changed = False; ... changed = True`, or `while True` left where nothing changed.
    said: dict[str, set[bool]] = {}
    for node in nodes_in(loop.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) is bool:
            said.setdefault(key(node.targets[0]), set()).add(node.value.value)
    flags = {name for name, values in said.items() if name and values == {True, False}}
    if not any(isinstance(stmt, ast.Assign) and key(stmt.targets[0]) in flags for stmt in loop.body[:2]):
        return False
    leaves = [s.test for s in loop.body if isinstance(s, ast.If) and any(isinstance(n, ast.Break) for n in s.body)]
    return any(flags & names(test) for test in (loop.test, *leaves))


def _compares_with_before(loop: ast.While) -> bool:
    # `before = state[:]` ... `if state == before: break`, or the same in the loop's test, perhaps by length.
    leaves = (ast.Break, ast.Return)
    tests = [s.test for s in loop.body if isinstance(s, ast.If) and any(isinstance(n, leaves) for n in s.body)]
    kept = {key(s.targets[0]): s.value for s in loop.body if isinstance(s, ast.Assign) and key(s.targets[0])}
    changed = {key(target) for node in nodes_in(loop.body) for target in _targets(node)}
    for test in (t for t in (loop.test, *tests) if isinstance(t, ast.Compare)):
        sides = (test.left, test.comparators[0])
        for one, other in (sides, sides[::-1]):
            value = kept.get(key(one))
            copied = value is not None and _is_copy(value) and not isinstance(other, ast.Constant)
            if copied and names(value) & names(other) - {key(one)} and names(other) & changed:
                return True
    return False


def _is_copy(value: ast.expr) -> bool:
    # whether a value is a copy of a state, or its length: not one item of it
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Slice)
    copies = ("len", "list", "set", "dict", "tuple", "deepcopy")
    return isinstance(value, ast.Name) or (isinstance(value, ast.Call) and _name(value) in copies)


def _targets(node: ast.AST) -> list[ast.expr]:
    places = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return [place.value if isinstance(place, ast.Subscript) else place for place in places]


def _replaces(loop: ast.While) -> bool:
    # `while "()" in s: s = s.replace("()", "")`
    for node in nodes_in(loop.body):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        by = node.value.func.attr if isinstance(node.value.func, ast.Attribute) else ""
        if by in ("replace", "sub", "subn") and names(node.targets[0]) & names(node.value) & names(loop.test):
            return True
    return False


def _events(scene: Scene, name: str) -> bool:
    # A list that gets two marked points in each round and is put in order: `(start, 1)` and `(end, -1)`
    ordered = scene.uses(name, "sort", "sorted", "heapify")
    if not ordered and not any(key(arg) == name for c in scene.calls if "sorted" in _name(c) for arg in c.args):
        return False
    points: list[ast.expr | None] = []
    for fill in scene.uses(name, "append", "extend"):
        value = fill.args[0] if isinstance(fill, ast.Call) and fill.args else getattr(fill, "value", None)
        if scene.loops(fill):
            points += value.elts if isinstance(value, ast.List) else [value]
    for comp in nodes_in(scene.made.get(name, [])):
        if isinstance(comp, ast.ListComp):
            sources = [g.iter for g in comp.generators if isinstance(g.iter, (ast.Tuple, ast.List))]
            points += [comp.elt, *(part for source in sources for part in source.elts)]
    marked = [part for point in points if isinstance(point, ast.Tuple) for part in point.elts]
    return len({spelled(part) for part in marked if _is_mark(part)}) > 1


def _both_ends(scene: Scene) -> bool:
    # all starts in order, and all ends in order: events in two lists
    found: dict[Hashable, set[str]] = {}
    for name, values in scene.made.items():
        for value in values:
            if isinstance(value, ast.Call) and _name(value) == "sorted" and value.args:
                item = value.args[0]
                if isinstance(item, (ast.GeneratorExp, ast.ListComp)) and not isinstance(item.elt, ast.Name):
                    found.setdefault(spelled(item.generators[0].iter), set()).add(name)
    return any(len(each) > 1 for each in found.values())


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_mark(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)
