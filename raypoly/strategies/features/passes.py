"""Passes over the whole: repeated until nothing changes, or over events in order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.scene import Scene, key, names, nodes_in


def features(scene: Scene) -> Iterator[str]:
    """`fixpoint`, `sweep`."""
    if any(_until_stable(node) for node in scene.nodes):
        yield "fixpoint"
    if any(_events(scene, name) for name in sorted(scene.done_to)) or _both_ends(scene):
        yield "sweep"


def _until_stable(loop: ast.AST) -> bool:
    """`while changed: changed = False; ... changed = True`, or `while True` left where nothing changed."""
    if not isinstance(loop, ast.While):
        return False
    if _compares_with_before(loop) or _replaces(loop):
        return True
    said: dict[str, set[bool]] = {}
    for node in nodes_in(loop.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) is bool:
            said.setdefault(key(node.targets[0]), set()).add(node.value.value)
    flags = {name for name, values in said.items() if name and values == {True, False}}
    first = [stmt for stmt in loop.body[:2] if isinstance(stmt, ast.Assign) and key(stmt.targets[0]) in flags]
    if not first:
        return False
    leaves = [s for s in loop.body if isinstance(s, ast.If) and any(isinstance(n, ast.Break) for n in s.body)]
    return bool(flags & names(loop.test)) or any(flags & names(stmt.test) for stmt in leaves)


def _compares_with_before(loop: ast.While) -> bool:
    """`before = state[:]` ... `if state == before: break`, or the same in the loop's test, perhaps by length."""
    tests = [loop.test]
    for stmt in loop.body:
        if isinstance(stmt, ast.If) and any(isinstance(n, (ast.Break, ast.Return)) for n in stmt.body):
            tests.append(stmt.test)
    kept = {key(s.targets[0]): s.value for s in loop.body if isinstance(s, ast.Assign) and key(s.targets[0])}
    for test in tests:
        if not isinstance(test, ast.Compare):
            continue
        sides = [test.left, test.comparators[0]]
        for one, other in (sides, sides[::-1]):
            value = kept.get(key(one))
            copied = isinstance(value, (ast.Name, ast.Subscript, ast.Call)) and not isinstance(other, ast.Constant)
            if value is not None and copied and names(value) & names(other) - {key(one)} and _is_whole(value):
                changed = {key(t) for n in nodes_in(loop.body) for t in _targets(n)}
                if names(other) & changed:
                    return True
    return False


def _is_whole(value: ast.expr) -> bool:
    """Whether a value is a copy of a state, or its length: not one item of it."""
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Slice)
    return not isinstance(value, ast.Call) or _name(value) in ("len", "list", "set", "dict", "tuple", "deepcopy")


def _targets(node: ast.AST) -> list[ast.expr]:
    places = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return [place.value if isinstance(place, ast.Subscript) else place for place in places]


def _replaces(loop: ast.While) -> bool:
    """`while "()" in s: s = s.replace("()", "")`."""
    for node in nodes_in(loop.body):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        by = node.value.func.attr if isinstance(node.value.func, ast.Attribute) else ""
        if by in ("replace", "sub", "subn") and names(node.targets[0]) & names(node.value) & names(loop.test):
            return True
    return False


def _events(scene: Scene, name: str) -> bool:
    """A list that gets two marked points in each round and is put in order: `(start, 1)` and `(end, -1)`."""
    ordered = scene.uses(name, "sort", "sorted", "heapify")
    if not ordered and not any(key(arg) == name for c in scene.calls if "sorted" in _name(c) for arg in c.args):
        return False
    marked: list[ast.Tuple] = []
    for fill in scene.uses(name, "append", "extend"):
        value = fill.args[0] if isinstance(fill, ast.Call) and fill.args else getattr(fill, "value", None)
        parts = value.elts if isinstance(value, (ast.List,)) else [value]
        marked += [part for part in parts if isinstance(part, ast.Tuple) and scene.loops(fill)]
    for value in scene.made.get(name, []):
        for comp in ast.walk(value):
            if isinstance(comp, ast.ListComp):
                marked += [comp.elt] if isinstance(comp.elt, ast.Tuple) else []
                marked += [
                    part
                    for g in comp.generators
                    if isinstance(g.iter, (ast.Tuple, ast.List))
                    for part in g.iter.elts
                    if isinstance(part, ast.Tuple)
                ]
    marks = {ast.dump(part) for row in marked for part in row.elts if _is_mark(part)}
    return len(marks) > 1


def _both_ends(scene: Scene) -> bool:
    """All starts in order, and all ends in order: events in two lists."""
    found: dict[str, set[str]] = {}
    for name, values in scene.made.items():
        for value in values:
            if isinstance(value, ast.Call) and _name(value) == "sorted" and value.args:
                item = value.args[0]
                if isinstance(item, (ast.GeneratorExp, ast.ListComp)) and not isinstance(item.elt, ast.Name):
                    found.setdefault(ast.dump(item.generators[0].iter), set()).add(name)
    return any(len(each) > 1 for each in found.values())


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_mark(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant)
