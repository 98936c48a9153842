"""Tables: recurrences over places, relaxation along edges, all pairs, cascades, trees in arrays.

A recurrence stores a value that comes from the same table at another place. So values are followed: through tables that
take each other's place, and names made from what a table held.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.scene import (
    Scene,
    indices,
    is_call,
    is_last,
    is_number,
    is_op,
    key,
    method_owner,
    names,
    pairs,
    same,
    stored_value,
    walk,
)
from raypoly.strategies.live_code.bindings import COMPREHENSIONS

_COPIES = ("list", "dict", "set", "Counter")


def features(scene: Scene) -> Iterator[str]:
    """`dp`, `interval`, `prefix`, `relax`, `all_pairs`, `cascade`, `pruned`, `fenwick`."""
    for group in _rolling_groups(scene):
        yield from _recurrence(scene, group)
    compared = [names(node) for node in scene.nodes if isinstance(node, ast.Compare)]
    if any(ends and any(ends <= held for held in compared) for ends in map(_inwards, scene.nodes)):
        yield "interval"
    for name in sorted(scene.done_to):
        if _doubles(scene, name):
            yield "fenwick"


def _inwards(node: ast.AST) -> set[str]:
    # the ends of an interval that is made from the one inside it: `t[i + 1][j - 1]`, `go(i + 1, j - 1)`
    if isinstance(node, ast.Call):
        ends: list[ast.expr] = node.args if isinstance(node.func, ast.Name) else []
        if any(isinstance(arg, ast.Tuple) for arg in node.args):
            ends = [part for arg in node.args if isinstance(arg, ast.Tuple) for part in arg.elts]
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        ends = node.slice.elts
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript):
        ends = [node.value.slice, node.slice]
    else:
        return set()
    ways = [
        type(end.op)
        for end in ends
        if isinstance(end, ast.BinOp) and isinstance(end.left, ast.Name) and is_number(end.right, 1)
    ]
    return {name for end in ends for name in names(end)} if len(ends) == 2 and ways == [ast.Add, ast.Sub] else set()


def _recurrence(scene: Scene, group: set[str]) -> Iterator[str]:
    # stores whose value, or whose condition, reads the same table at another place
    reads = {id(n) for name in group for n in scene.uses(name, "load", "get")}
    if reads or len(group) > 1 or "add" in scene.kinds(min(group)):
        flow = _flow_of(scene, reads, group)
        stores = [n for name in sorted(group) for n in scene.uses(name, "store", "add_to", "append", "add", "fill_in")]
        for store in stores:
            if scene.loops(store):
                yield from _one_store(scene, store, group, reads, flow)
    yield from _whole(scene, group)


def _one_store(scene: Scene, store: ast.AST, group: set[str], reads: set[int], flow: list[set[str]]) -> Iterator[str]:
    stmt = scene.statement(store)
    value = stored_value(stmt, store)
    if value is None or _is_swap(stmt):
        return
    inside = [n for n in walk(value) if id(n) in reads]
    other = [n for n in inside if not _same_place(n, store)]
    tainted = names(value) & flow[1 if isinstance(value, ast.Name) else 0]
    if isinstance(store, ast.Call) and isinstance(value, ast.Name) and not key(getattr(store.func, "value", None)):
        return  # a table of lists that are filled
    if isinstance(store, ast.Subscript) and is_last(store.slice):
        return  # the last item is made larger, as intervals are when they are merged
    if isinstance(stmt, ast.Assign) and isinstance(value, ast.Subscript):
        return  # moving an item from one place to another is no recurrence
    if len(inside) == 1 and other and _adds_up(stmt, value, other[0], store):
        chosen = any(id(n) in reads for test in _conditions(scene, store) for n in walk(test))
        yield "dp" if chosen or _again(scene, store, group) else "prefix"
        return
    if other or tainted:
        yield _shape(scene, store, value)
    elif isinstance(stmt, ast.Assign) and isinstance(value, ast.Constant) and isinstance(store, ast.Subscript):
        if not any(scene.made.get(name) for name in group):
            return  # marks in what was given
        asked = [n for test in _conditions(scene, store) for n in walk(test) if id(n) in reads]
        if any(isinstance(n, ast.Subscript) and not _same_place(n, store) for n in asked):
            yield "dp"


def _again(scene: Scene, store: ast.AST, group: set[str]) -> bool:
    # whether a row is gone over once more in each round of a loop that it outlives: a table with one row kept
    loops = scene.loops(store)
    made = [v for name in group for v in scene.made.get(name, []) if not isinstance(v, ast.Name)]
    return len(loops) > 1 and bool(made) and not any(set(scene.loops(value)) & set(loops) for value in made)


def _conditions(scene: Scene, node: ast.AST) -> list[ast.expr]:
    # tests that decide whether a statement runs: those around it, and those that go on to the next round before it
    around = scene.around(node)
    tests = [up.test for up in around if isinstance(up, ast.If)]
    for loop in scene.loops(node):
        skips = [s for s in loop.body if isinstance(s, ast.If) and s.body and isinstance(s.body[-1], ast.Continue)]
        tests.extend(s.test for s in skips if s not in around)
    return tests


def _adds_up(stmt: ast.AST, value: ast.expr, read: ast.AST, store: ast.AST) -> bool:
    # `p[i] = p[i - 1] + x`, or with a product, a maximum, a minimum: nothing is chosen but the running total
    if not _is_neighbour(read, store):
        return False
    if isinstance(stmt, ast.AugAssign):
        return value is read and isinstance(stmt.op, (ast.Add, ast.Mult, ast.BitXor))
    if is_call(value, "max", "min") and len(value.args) == 2:
        return any(arg is read for arg in value.args)
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult, ast.BitXor)):
        rest = value.right if value.left is read else value.left if value.right is read else None
        return rest is not None and not isinstance(rest, ast.Constant)
    return False


def _is_neighbour(read: ast.AST, store: ast.AST) -> bool:
    # whether a value one place on is read, in a table of one dimension
    if not isinstance(read, ast.Subscript) or isinstance(read.value, ast.Subscript):
        return False
    if not isinstance(store, ast.Subscript):
        return is_last(read.slice)
    return any(
        is_op(one, ast.Add, ast.Sub) and is_number(one.right, 1) and same(one.left, other)
        for one, other in ((read.slice, store.slice), (store.slice, read.slice))
    )


def _shape(scene: Scene, store: ast.AST, value: ast.expr) -> str:
    # A recurrence over places, relaxation along the edges of a graph, or lists made longer
    inside = isinstance(store, ast.Call) and isinstance(store.func, ast.Attribute) and not key(store.func.value)
    sides = (value.left, value.right) if isinstance(value, ast.BinOp) else ()
    if not inside and any(isinstance(n, (ast.List, ast.Tuple)) for n in sides):
        return "cascade"
    loops = scene.loops(store)
    if not isinstance(store, ast.Subscript) or len(loops) < 2 or not isinstance(loops[0], ast.For):
        return "dp"
    if isinstance(store.value, ast.Subscript) and len(loops) >= 3 and isinstance(loops[-1], ast.For):
        middle = names(loops[-1].target)
        through = any(isinstance(n, ast.Subscript) and key(n.slice) in middle for n in walk(value))
        if through and not names(store) & middle:
            return "all_pairs"
    return "relax" if _along_edges(loops[0], store) else "dp"


def _along_edges(loop: ast.For, store: ast.Subscript) -> bool:
    # whether the place comes out of a tuple that the loop takes from a container: an edge
    if not isinstance(loop.iter, (ast.Name, ast.Attribute)):
        return False
    opened = [s.targets[0] for s in loop.body if isinstance(s, ast.Assign) and names(s.value) & names(loop.target)]
    return any(isinstance(place, ast.Tuple) and names(store.slice) & names(place) for place in (loop.target, *opened))


def _whole(scene: Scene, group: set[str]) -> Iterator[str]:
    # A whole row made from the last one: `row = [row[i] + row[i + 1] ...]`, `sums |= {s + x for s in sums}`
    for node in scene.nodes:
        if not isinstance(node, (ast.Assign, ast.AugAssign)):
            continue
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        loops = scene.loops(node) if key(target) in group else []
        if not loops or any(isinstance(loop, ast.While) and names(loop.test) & group for loop in loops):
            continue
        reading = [n for n in walk(node.value) if isinstance(n, COMPREHENSIONS) and names(n) & group]
        if reading:
            over = any(key(g.iter) in group for c in reading for g in c.generators)
            lists = over and isinstance(reading[0], ast.ListComp) and isinstance(reading[0].elt, ast.BinOp)
            if lists and reading[0].generators[-1].ifs:
                yield "pruned"
            yield "cascade" if lists else "dp"


def _is_swap(stmt: ast.AST) -> bool:
    return isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Tuple) and isinstance(stmt.value, ast.Tuple)


def _doubles(scene: Scene, name: str) -> bool:
    # A tree in an array: what is at `i` comes from `2 * i` and the place beside it
    def child(index: ast.AST) -> bool:
        twice = is_op(index, ast.Mult) and (is_number(index.left, 2) or is_number(index.right, 2))
        return twice or (is_op(index, ast.LShift) and is_number(index.right, 1))

    places = [n.slice for n in scene.uses(name, "load") if isinstance(n, ast.Subscript)]
    beside = any(is_op(place, ast.Add, ast.BitOr) and child(place.left) for place in places)
    return beside and any(map(child, places)) and bool(scene.uses(name, "store"))


def _rolling_groups(scene: Scene) -> list[set[str]]:
    # containers, those that take each other's place in a loop together: `prev = cur`
    groups: dict[str, set[str]] = {name: {name} for name in sorted(set(scene.done_to) | set(scene.made))}
    for name, values in scene.made.items():
        for value in values:
            other = key(value)
            if (owner := method_owner(value, "copy")) is not None:
                other = key(owner)
            if is_call(value, *_COPIES) and len(value.args) == 1:
                other = key(value.args[0])
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
                other = key(value.value)
            filled = scene.kinds(other) & {"store", "add_to", "append", "add"}
            if other in groups and filled and scene.loops(value):
                joined = groups[name] | groups[other]
                groups.update(dict.fromkeys(joined, joined))
    unique: list[set[str]] = []
    for group in groups.values():
        if group not in unique:
            unique.append(group)
    return unique


def _flow_of(scene: Scene, reads: set[int], group: set[str]) -> list[set[str]]:
    # names whose value comes from what a table held; those of them that were computed from it, not just read
    found: set[str] = set()
    if len(group) > 1:
        each = [n for name in group for n in scene.uses(name, "each")]
        found.update(*(names(n.target) for n in each if isinstance(n, (ast.For, ast.comprehension))))
    worked = set(found)
    made: list[tuple[ast.expr, ast.expr]] = []
    for n in scene.nodes:
        if isinstance(n, ast.Assign):
            made.extend((target, value) for target, value in pairs(n) if isinstance(target, (ast.Name, ast.Tuple)))
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            made.append((n.target, n.value))
        elif isinstance(n, ast.For):
            made.append((n.target, n.iter))
        elif isinstance(n, ast.Call) and n.args and (owner := method_owner(n, "append")):
            made.append((owner, n.args[0]))
    while True:
        before = len(found) + len(worked)
        for target, value in made:
            if any(id(n) in reads for n in walk(value)) or names(value) & found:
                found |= names(target) - group
                if not isinstance(value, (ast.Name, ast.Subscript)) or names(value) & worked:
                    worked |= names(target) - group
        if len(found) + len(worked) == before:
            return [found, worked]


def _same_place(read: ast.AST, store: ast.AST) -> bool:
    if isinstance(read, ast.Call) and isinstance(store, ast.Subscript):
        return bool(read.args) and same(read.args[0], store.slice)
    if not isinstance(read, ast.Subscript) or not isinstance(store, ast.Subscript):
        return False
    return all(map(same, indices(read), indices(store)))
