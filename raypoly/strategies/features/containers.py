"""Containers that give back in an order: heaps, queues, stacks, monotonic ones, windows held in a queue.

Told by what is done to them and where, never by their names or types. Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.index_moves import steps
from raypoly.strategies.features.scene import Scene, key, names, same
from raypoly.strategies.live_code.constructs import called

_HEAP = frozenset({"heappush", "heappop", "heapify", "heapreplace", "heappushpop"}) | frozenset(
    {"nlargest", "nsmallest", "merge", "PriorityQueue"}
)
_FILL = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "put"})
_TABLES = frozenset({"dict", "Counter", "defaultdict", "OrderedDict"})
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def features(scene: Scene) -> Iterator[str]:
    """`heap`, `queue`, `mono_queue`, `window`, `fifo`, `stack`, `dfs_stack`, `mono_stack`."""
    if scene.library & _HEAP:
        yield "heap"
    for name in sorted(scene.done_to):
        yield from _line(scene, name)
    if _next_level(scene) or any(_reads_on(scene, loop) for loop in scene.nodes):
        yield "queue"
    if any(_releases(scene, loop) for loop in scene.nodes):
        yield "kahn"


def _line(scene: Scene, name: str) -> Iterator[str]:
    """Queues and stacks: something goes in, and comes out at an end."""
    fills = scene.uses(name, *_FILL)
    firsts, lasts = scene.uses(name, "pop_first", "get"), scene.uses(name, "pop_last")
    firsts = [node for node in firsts if not _is_keyed_get(node)]
    whiles = [loop for loop in scene.nodes if isinstance(loop, ast.While)]
    if firsts and lasts and any(_compares_in_order(scene, node) for node in scene.uses(name, "load")):
        yield "mono_queue"
    elif firsts and fills:
        drained = [loop for loop in whiles if name in _not_empty(loop.test)]
        if any(_within(loop, firsts) and _within(loop, fills) for loop in drained):
            yield "queue"
        else:
            trailing = any(
                not _within(loop, fills) and _within(loop, firsts) and _fed(scene, loop, fills) for loop in whiles
            )
            yield "window" if trailing else "fifo"
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
    elif lasts and fills and not _in_recursion(scene, lasts):
        tests = [loop for loop in scene.uses(name, "test") if isinstance(loop, ast.While)]
        endless = [loop for loop in whiles if isinstance(loop.test, ast.Constant)]
        if any(_within(loop, lasts) and _within(loop, fills) for loop in tests + endless):
            yield "dfs_stack"
            if any(_carries_path(fill) for fill in fills):
                yield "backtrack"
                if all(any(isinstance(up, ast.If) for up in scene.around(fill)) for fill in fills):
                    yield "pruned"
        elif any(_unwinds(scene, loop, name, lasts, fills) for loop in whiles):
            yield "mono_stack"
        elif any(scene.repeated(node) for node in lasts):
            yield "stack"


def _releases(scene: Scene, loop: ast.AST) -> bool:
    """What waits for others is counted down, and put in line once nothing is left: Kahn's order."""
    if not isinstance(loop, (ast.While, ast.For)):
        return False
    inner = [node for stmt in loop.body for node in ast.walk(stmt)]
    counted: list[ast.expr] = [n.target for n in inner if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Sub)]
    counted += [
        n.func.value for n in inner if _takes_out(n) and isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    ]
    places = [place for place in counted if isinstance(place, ast.Subscript)]
    return any(
        isinstance(node, ast.If)
        and any(same(part, place) for part in ast.walk(node.test) for place in places)
        and any(isinstance(n, ast.Call) and called(n) in _FILL for stmt in node.body for n in ast.walk(stmt))
        for node in inner
    )


def _takes_out(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called(node) in ("remove", "discard") and len(node.args) == 1


def _fed(scene: Scene, loop: ast.While, fills: list[ast.AST]) -> bool:
    """Whether the loop stands in a `for` that fills what it takes from: a window held in a queue."""
    return any(isinstance(outer, ast.For) and _within(outer, fills) for outer in scene.loops(loop))


def _compares_in_order(scene: Scene, node: ast.AST) -> bool:
    """Whether an end of a container, or what it points at, is held against something by order."""
    return any(isinstance(up, ast.Compare) and isinstance(up.ops[0], _ORDER) for up in scene.around(node)[:4]) or any(
        isinstance(up, ast.While)
        and any(isinstance(op, _ORDER) for n in ast.walk(up) if isinstance(n, ast.Compare) for op in n.ops)
        for up in scene.around(node)[:4]
    )


def _constant_index(node: ast.AST) -> bool:
    """Whether an item is taken from an end, or by its key."""
    if isinstance(node, ast.Call):
        return len(node.args) != 1 or not isinstance(node.args[0], (ast.Name, ast.BinOp))
    return not isinstance(node, ast.Subscript) or not isinstance(node.slice, (ast.Name, ast.BinOp))


def _keyed(scene: Scene, name: str) -> bool:
    """Whether a container was made as a table by keys."""
    made = scene.made.get(name, [])
    return any(isinstance(v, ast.Dict) or (isinstance(v, ast.Call) and called(v) in _TABLES) for v in made)


def _is_keyed_get(node: ast.AST) -> bool:
    """`d.get(k)` of a dictionary, where a queue's `get()` takes nothing."""
    return isinstance(node, ast.Call) and called(node) == "get" and bool(node.args)


def _within(outer: ast.AST, inner: list[ast.AST]) -> bool:
    wanted = {id(node) for node in inner}
    return any(id(node) in wanted for node in ast.walk(outer))


def _in_recursion(scene: Scene, nodes: list[ast.AST]) -> bool:
    return any(scene.function(node) in scene.recursive for node in nodes)


def _unwinds(scene: Scene, loop: ast.While, name: str, lasts: list[ast.AST], fills: list[ast.AST]) -> bool:
    """A loop that pops while the top compares in order with something, inside a loop that pushes."""
    if not _within(loop, lasts) or _within(loop, fills):
        return False
    outer = scene.loops(loop)
    pushes = any(_within(out, fills) for out in outer)
    tops = {name} | {
        n
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign) and name in names(node.value)
        for t in node.targets
        for n in names(t)
    }
    ordered = any(
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], _ORDER)
        and names(node) & tops
        and not _of_length(node)
        for node in ast.walk(loop)
    )
    return pushes and ordered


def _of_length(node: ast.Compare) -> bool:
    """Whether a comparison is of a length with a number."""
    return (
        isinstance(node.left, ast.Call)
        and key(node.left.func) == "len"
        and isinstance(node.comparators[0], ast.Constant)
    )


def _next_level(scene: Scene) -> bool:
    """A frontier: `while level:` whose body builds another container out of it and puts it in its place."""
    for loop in scene.nodes:
        if not isinstance(loop, ast.While):
            continue
        tested = _not_empty(loop.test)
        for node in ast.walk(loop):
            if not isinstance(node, ast.Assign) or not names(node.targets[0]) & tested:
                continue
            for name in names(node.targets[0]) & tested:
                others = names(node.value) - {name}
                built = [other for other in others if scene.kinds(other) & {"append", "add", "extend", "update"}]
                comp = any(
                    isinstance(n, (ast.ListComp, ast.SetComp)) and len(n.generators) > 1 and name in names(n)
                    for n in ast.walk(node.value)
                )
                if scene.uses(name, "each") and (comp or any(_within(loop, scene.uses(b, *_FILL)) for b in built)):
                    return True
    return False


def _carries_path(fill: ast.AST) -> bool:
    """Whether what is pushed holds a way made longer: `stack.append((i, path + [x]))`."""
    return any(
        isinstance(n, ast.BinOp)
        and isinstance(n.op, ast.Add)
        and (isinstance(n.right, (ast.List, ast.Tuple)) or isinstance(getattr(n.right, "value", None), str))
        for n in ast.walk(fill)
    )


def _reads_on(scene: Scene, loop: ast.AST) -> bool:
    """A list that a loop reads by a rising index and makes longer: `x = q[i]; i += 1; q.append(y)`."""
    if not isinstance(loop, ast.While):
        return False
    rising = {name for name, ways in steps(loop.body).items() if ways == {1}} & names(loop.test)
    return any(
        _within(loop, scene.uses(name, *_FILL))
        and any(isinstance(n, ast.Subscript) and key(n.slice) in rising for n in scene.uses(name, "load"))
        for name in names(loop.test)
    )


def _not_empty(test: ast.expr) -> set[str]:
    """Containers that a loop runs for as long as there is something in them."""
    if isinstance(test, ast.BoolOp):
        return {name for value in test.values for name in _not_empty(value)}
    if (
        isinstance(test, ast.Compare)
        and isinstance(test.comparators[0], ast.Constant)
        and not test.comparators[0].value
    ):
        test = test.left
    if isinstance(test, ast.Call) and key(test.func) == "len" and test.args:
        test = test.args[0]
    return {key(test)} - {""}
