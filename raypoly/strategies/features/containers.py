"""Containers that give back in an order: heaps, queues, stacks, monotonic ones, windows held in a queue.

Told by what is done to a container, and where. Growing by the best at hand (Dijkstra, Prim, A*) is told here too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.index_moves import steps
from raypoly.strategies.features.scene import (
    ORDER,
    Scene,
    assigned,
    contains,
    is_call,
    is_op,
    key,
    method_owner,
    names,
    nodes_in,
    same,
    walk,
)

_HEAP = frozenset({"heappush", "heappop", "heapify", "heapreplace", "heappushpop"}) | frozenset(
    {"nlargest", "nsmallest", "merge", "PriorityQueue"}
)
_FILL = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "put"})
_PUSHES = frozenset({"heappush", "heappushpop", "put"})
_TABLES = frozenset({"dict", "Counter", "defaultdict", "OrderedDict"})


def features(scene: Scene) -> Iterator[str]:
    """`heap`, `queue`, `mono_queue`, `window`, `fifo`, `stack`, `dfs_stack`, `mono_stack`, `kahn`, `best_first`."""
    if scene.library & _HEAP:
        yield "heap"
    for name in sorted(scene.done_to):
        yield from _line(scene, name)
    if any(_next_level(scene, loop) or _reads_on(scene, loop) for loop in scene.whiles):
        yield "queue"
    if any(_releases(loop) for loop in scene.both_loops):
        yield "kahn"
    if any(_by_heap(scene, loop) or _by_looking(loop) for loop in scene.both_loops):
        yield "best_first"


def _line(scene: Scene, name: str) -> Iterator[str]:
    # queues and stacks: something goes in, and comes out at an end
    fills = scene.uses(name, *_FILL)
    lasts = scene.uses(name, "pop_last")  # `d.get(k)` takes from a dictionary, a queue's `get()` has no arguments
    firsts = [n for n in scene.uses(name, "pop_first", "get") if not (is_call(n, "get") and n.args)]
    if firsts and lasts and any(_compares_in_order(scene, node) for node in scene.uses(name, "load")):
        yield "mono_queue"
    elif firsts and fills:
        drained = [loop for loop in scene.whiles if name in _not_empty(loop.test)]
        if any(_within(loop, firsts) and _within(loop, fills) for loop in drained):
            yield "queue"
        else:
            loops = [loop for loop in scene.whiles if not _within(loop, fills) and _within(loop, firsts)]
            yield "window" if any(_fed(scene, loop, fills) for loop in loops) else "fifo"
    elif any(scene.loops(node) for node in firsts) or any(
        scene.loops(n)
        and scene.function(n) not in scene.recursive
        and not _constant_index(n)
        and not _keyed(scene, name)
        for n in scene.uses(name, "pop_last", "delete")
    ):
        yield "fifo"
    elif any(_within(stmt, fills) for use in scene.uses(name, "each") if isinstance(use, ast.For) for stmt in use.body):
        yield "queue"
    elif lasts and fills and not any(scene.function(node) in scene.recursive for node in lasts):
        endless = [loop for loop in scene.whiles if isinstance(loop.test, ast.Constant)]
        if any(_within(loop, lasts) and _within(loop, fills) for loop in (*scene.uses(name, "test"), *endless)):
            yield "dfs_stack"
            if any(_carries_path(fill) for fill in fills):
                yield "backtrack"
                if all(any(isinstance(up, ast.If) for up in scene.around(fill)) for fill in fills):
                    yield "pruned"
        elif any(_unwinds(scene, loop, name, lasts, fills) for loop in scene.whiles):
            yield "mono_stack"
        elif any(scene.repeated(node) for node in lasts):
            yield "stack"


def _releases(loop: ast.For | ast.While) -> bool:
    # what waits for others is counted down, and put in line once nothing is left: Kahn's order
    inner = nodes_in(loop.body)
    counted: list[ast.expr] = [n.target for n in inner if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Sub)]
    counted += [
        owner for n in inner if (owner := method_owner(n, "remove", "discard")) and len(getattr(n, "args", ())) == 1
    ]
    places = [place for place in counted if isinstance(place, ast.Subscript)]
    return any(
        isinstance(node, ast.If)
        and any(same(part, place) for part in walk(node.test) for place in places)
        and any(is_call(n, *_FILL) for n in nodes_in(node.body))
        for node in inner
    )


def _fed(scene: Scene, loop: ast.While, fills: list[ast.AST]) -> bool:
    # whether the loop stands in a `for` that fills what it takes from: a window held in a queue
    return any(isinstance(outer, ast.For) and _within(outer, fills) for outer in scene.loops(loop))


def _compares_in_order(scene: Scene, node: ast.AST) -> bool:
    # whether an end of a container, or what it points at, is held against something by order
    return any(isinstance(up, ast.Compare) and isinstance(up.ops[0], ORDER) for up in scene.around(node)[:4]) or any(
        isinstance(up, ast.While)
        and any(isinstance(op, ORDER) for n in walk(up) if isinstance(n, ast.Compare) for op in n.ops)
        for up in scene.around(node)[:4]
    )


def _constant_index(node: ast.AST) -> bool:
    # whether an item is taken from an end, or by its key
    if isinstance(node, ast.Call):
        return len(node.args) != 1 or not isinstance(node.args[0], (ast.Name, ast.BinOp))
    return not isinstance(node, ast.Subscript) or not isinstance(node.slice, (ast.Name, ast.BinOp))


def _keyed(scene: Scene, name: str) -> bool:
    # whether a container was made as a table by keys
    made = scene.made.get(name, [])
    return any(isinstance(v, ast.Dict) or is_call(v, *_TABLES) for v in made)


def _within(outer: ast.AST, inner: list[ast.AST]) -> bool:
    # whether some of the nodes are in a piece of code; what follows a loop as its `else` is not in it
    parts = [outer.test, *outer.body] if isinstance(outer, ast.While) else [outer]
    wanted = {id(node) for node in inner}
    return any(contains(part, wanted) for part in parts)


def _unwinds(scene: Scene, loop: ast.While, name: str, lasts: list[ast.AST], fills: list[ast.AST]) -> bool:
    # A loop that pops while the top compares in order with something, inside a loop that pushes
    if not _within(loop, lasts) or _within(loop, fills) or not any(_within(up, fills) for up in scene.loops(loop)):
        return False
    inner = walk(loop)
    taken = [t for n in inner if isinstance(n, ast.Assign) and name in names(n.value) for t in n.targets]
    tops = {name}.union(*map(names, taken))
    ordered = [n for n in inner if isinstance(n, ast.Compare) and isinstance(n.ops[0], ORDER) and names(n) & tops]
    lengths = [n for n in ordered if isinstance(n.left, ast.Call) and key(n.left.func) == "len"]
    return len(ordered) > sum(isinstance(n.comparators[0], ast.Constant) for n in lengths)


def _next_level(scene: Scene, loop: ast.While) -> bool:
    # A frontier: `while level:` whose body builds another container out of it and puts it in its place
    tested = _not_empty(loop.test)
    for node in (n for n in walk(loop) if isinstance(n, ast.Assign)):
        for name in names(node.targets[0]) & tested:
            others = names(node.value) - {name}
            built = [other for other in others if scene.kinds(other) & {"append", "add", "extend", "update"}]
            comp = any(
                isinstance(n, (ast.ListComp, ast.SetComp)) and len(n.generators) > 1 and name in names(n)
                for n in walk(node.value)
            )
            if scene.uses(name, "each") and (comp or any(_within(loop, scene.uses(b, *_FILL)) for b in built)):
                return True
    return False


def _carries_path(fill: ast.AST) -> bool:
    # whether what is pushed holds a way made longer: `stack.append((i, path + [x]))`
    ends = [n.right for n in walk(fill) if is_op(n, ast.Add)]
    return any(isinstance(n, (ast.List, ast.Tuple)) or isinstance(getattr(n, "value", None), str) for n in ends)


def _reads_on(scene: Scene, loop: ast.While) -> bool:
    # A list that a loop reads by a rising index and makes longer: `x = q[i]; i += 1; q.append(y)`
    rising = {name for name, ways in steps(loop.body).items() if ways == {1}} & names(loop.test)
    return any(
        _within(loop, scene.uses(name, *_FILL))
        and any(isinstance(n, ast.Subscript) and key(n.slice) in rising for n in scene.uses(name, "load"))
        for name in names(loop.test)
    )


def _not_empty(test: ast.expr) -> set[str]:
    # containers that a loop runs for as long as there is something in them
    if isinstance(test, ast.BoolOp):
        return {name for value in test.values for name in _not_empty(value)}
    if isinstance(test, ast.Compare) and isinstance(zero := test.comparators[0], ast.Constant) and not zero.value:
        test = test.left
    if isinstance(test, ast.Call) and key(test.func) == "len" and test.args:
        test = test.args[0]
    return {key(test)} - {""}


def _by_heap(scene: Scene, loop: ast.For | ast.While) -> bool:
    # what comes out of the heap puts all that it leads to into it
    if not isinstance(loop, ast.While) or not scene.library & _PUSHES:
        return False
    pops = any(is_call(n, "heappop", "get") for n in walk(loop))
    fans = [n for n in nodes_in(loop.body) if isinstance(n, ast.For)]
    return pops and any(is_call(n, *_PUSHES) for n in nodes_in(fans))


def _by_looking(loop: ast.For | ast.While) -> bool:
    # in each round the best that is not done yet is looked for, marked as done, and what it leads to is updated
    chosen = {name for stmt in loop.body for name in _best(stmt)}
    marked = {_marked(node) for node in nodes_in(loop.body)}
    return bool(marked & chosen - {""})


def _marked(node: ast.AST) -> str:
    # the name that is put into a set or taken out of one, or whose place gets a constant
    if isinstance(node, ast.Call) and len(node.args) == 1 and method_owner(node, "add", "remove", "discard"):
        return key(node.args[0])
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return key(node.targets[0].slice) if isinstance(node.value, ast.Constant) else ""
    return ""


def _best(stmt: ast.stmt) -> Iterator[str]:
    # the names that hold the best item after `u = min(...)`, or after a loop that compares and keeps an index
    if isinstance(stmt, ast.Assign) and is_call(stmt.value, "min", "max") and len(stmt.value.args) == 1:
        yield from names(stmt.targets[0])
    if isinstance(stmt, ast.For):
        for choice in (n for n in walk(stmt) if isinstance(n, ast.If)):
            if any(isinstance(n, ast.Compare) and isinstance(n.ops[0], ORDER) for n in walk(choice.test)):
                for target, value in assigned(nodes_in(choice.body)):
                    if isinstance(target, ast.Name) and key(value) in names(stmt.target):
                        yield target.id
