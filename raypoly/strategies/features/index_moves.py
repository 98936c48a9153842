"""How indices move (halving, facing, apart, side by side, trailing), and items: turned round, transposed, in cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from raypoly.strategies.features.scene import (
    ORDER,
    Scene,
    halved,
    indices,
    is_call,
    is_number,
    is_op,
    key,
    method_owner,
    names,
    nodes_in,
    pairs,
    same,
    walk,
)
from raypoly.strategies.live_code.constructs import called

_BISECT = frozenset({"bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right"})
_FACING = (*ORDER, ast.NotEq)


def features(scene: Scene) -> Iterator[str]:
    """`binary_search`, `bisect`, `two_pointers`, `merge`, `expand`, `window`."""
    for call in scene.calls:
        if called(call) in _BISECT & scene.library:
            by_key = any(word.arg == "key" for word in call.keywords)  # `bisect_left(range(n), True, key=enough)`
            yield "binary_search" if by_key and call.args and isinstance(call.args[0], ast.Call) else "bisect"
    for loop in scene.both_loops:
        if _halves_a_range(loop):
            yield "binary_search"
        if isinstance(loop, ast.While):
            yield from _pairs(scene, loop)
        elif _trailing(loop):
            yield "two_pointers"
        yield from _window(scene, loop)
    yield from _item_moves(scene)


def steps(body: list[ast.stmt]) -> dict[str, set[int]]:
    """Names that the statements move by a constant, and which ways: `{"v1": {1}, "v2": {-1}}`."""
    moved: dict[str, set[int]] = {}
    for node in nodes_in(body):
        for name, way in _step(node):
            moved.setdefault(name, set()).add(way)
    return moved


def _step(node: ast.AST) -> Iterator[tuple[str, int]]:
    moves: list[tuple[ast.expr, ast.operator, ast.expr]] = []
    if isinstance(node, ast.AugAssign):
        moves = [(node.target, node.op, node.value)]
    elif isinstance(node, ast.Assign):
        moves = [(t, v.op, v.right) for t, v in pairs(node) if isinstance(v, ast.BinOp) and key(v.left) == key(t)]
    for place, op, by in moves:
        if isinstance(place, ast.Name) and isinstance(op, (ast.Add, ast.Sub)) and isinstance(by, ast.Constant):
            yield place.id, 1 if isinstance(op, ast.Add) else -1


def middle(node: ast.AST | None) -> set[str]:
    """The two names whose midpoint an expression is; empty for anything else."""
    if isinstance(node, ast.Call) and key(node.func) == "int" and node.args:
        return middle(node.args[0])
    found: set[str] = set()
    if is_op(total := halved(node, ast.Div), ast.Add):
        if not any(is_op(part, ast.FloorDiv, ast.Div, ast.Mult) for part in walk(total)):
            found = names(total)
    elif is_op(node, ast.Add, ast.Sub):
        halves = [half for part in (node.right, node.left) if isinstance(half := halved(part, ast.Div), ast.BinOp)]
        found = next((names(h) for h in halves if any(is_op(n, ast.Sub) for n in walk(h))), found)
    return found if len(found) == 2 else set()


def _halves_a_range(loop: ast.For | ast.While) -> bool:
    # A loop that computes the midpoint of two names and moves one of them there
    inner = nodes_in(loop.body)
    ends = {name for node in inner if isinstance(node, (ast.Assign, ast.NamedExpr)) for name in middle(node.value)}
    return any(isinstance(n, ast.Name) and n.id in ends and isinstance(n.ctx, ast.Store) for n in inner)


def _pairs(scene: Scene, loop: ast.While) -> Iterator[str]:
    moved = steps(loop.body)
    up = {name for name, ways in moved.items() if 1 in ways}
    down = {name for name, ways in moved.items() if -1 in ways and name not in up}
    both = names(loop.test)
    compared = [n for n in walk(loop.test) if isinstance(n, ast.Compare)]
    facing = any(
        isinstance(n.ops[0], _FACING) and {key(n.left), key(n.comparators[0])} & up and names(n) & down
        for n in compared
    )
    if up & both and down & both:
        yield "two_pointers" if facing or _one_or_other(loop, up, down) else "expand"
    elif up & down or (up and down and facing):
        yield "two_pointers"
    bounded = {key(n.left) for n in compared if isinstance(n.ops[0], (ast.Lt, ast.LtE)) and len(n.ops) == 1}
    chosen = {name for stmt in loop.body if isinstance(stmt, ast.If) for name in steps([stmt])}
    if len(up & bounded & chosen) > 1 or _takes_heads(scene, loop):
        yield "merge"


def _one_or_other(loop: ast.While, up: set[str], down: set[str]) -> bool:
    # whether each round moves one index only: a staircase through a sorted matrix
    for node in nodes_in(loop.body):
        if isinstance(node, ast.If) and node.orelse:
            ways = set(steps(node.body)), set(steps(node.orelse))
            if any(one & up and other & down and not one & down for one, other in (ways, ways[::-1])):
                return True
    return False


def _trailing(loop: ast.For) -> bool:
    # A second index that only comes back while the loop goes on: `while j >= 0 and row[j] > x: j -= 1`
    for node in nodes_in(loop.body):
        if not isinstance(node, ast.While) or not names(node.test) & names(loop.target):
            continue
        inside = {id(n) for n in walk(node)}
        places = {key(n.slice) for n in walk(node.test) if isinstance(n, ast.Subscript)}
        for name in (n for n, ways in steps(node.body).items() if ways == {-1} and n in places):
            stores = [n for n in walk(loop) if isinstance(n, ast.Name) and n.id == name]
            if all(id(n) in inside for n in stores if isinstance(n.ctx, ast.Store)):
                return True
    return False


def _takes_heads(scene: Scene, loop: ast.While) -> bool:
    # two lists give up the smaller of their heads, one at a time
    taken = {name for name in names(loop.test) if any(n in walk(loop) for n in scene.uses(name, "pop_first"))}
    return len(taken) > 1 and any(isinstance(n, ast.Compare) and len(names(n) & taken) > 1 for n in walk(loop))


def _window(scene: Scene, loop: ast.For | ast.While) -> Iterator[str]:
    # an edge that trails the loop's own index: it only moves on, and is not set back in the loop
    lead = names(loop.target) if isinstance(loop, ast.For) else names(loop.test) & set(steps(loop.body))
    inner = nodes_in(loop.body)
    blocks = [n.body for n in inner if isinstance(n, (ast.While, ast.If))]
    sought = {name for body in blocks for name, ways in steps(body).items() if ways == {1}}
    sought |= {name for n in inner if (name := _jumps_on(n))}
    for name in sorted(sought - lead):
        stores = [n for n in inner if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
        moves = sum(1 for n in inner if dict(_step(n)).get(name) == 1 or _jumps_on(n) == name)
        if len(stores) == moves and _trails(scene, inner, name, lead):
            yield "window"
    if any(_drops_its_head(n, inner) or _leaves(n, inner, lead) for n in inner):
        yield "window"
    for n in inner:
        if isinstance(n, ast.Subscript) and is_op(n.slice, ast.Sub):
            owner = scene.parent.get(id(n))
            leaves = isinstance(owner, ast.AugAssign) and isinstance(owner.op, ast.Sub) and owner.value is n
            leaves |= is_op(owner, ast.Sub) and owner.right is n
            if leaves and names(n.slice) & lead and isinstance(n.slice.right, ast.Name):
                totals = {key(a.target) for a in scene.around(n) if isinstance(a, ast.AugAssign)} - {""}
                grown = {key(a.target) for a in inner if isinstance(a, ast.AugAssign) and isinstance(a.op, ast.Add)}
                if totals & grown:
                    yield "window"


def _drops_its_head(node: ast.AST, inner: list[ast.AST]) -> bool:
    # `seen = seen[seen.index(c) + 1 :]` beside `seen += c`: a window held as text
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Subscript):
        return False
    name, cut = key(node.targets[0]), node.value.slice
    if not name or key(node.value.value) != name or not isinstance(cut, ast.Slice) or cut.upper is not None:
        return False
    return any(isinstance(n, ast.AugAssign) and key(n.target) == name for n in inner)


def _leaves(node: ast.AST, inner: list[ast.AST], lead: set[str]) -> bool:
    # the item that falls out behind is counted down: `count[s[i - k]] -= 1`
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Sub):
        return False
    if not isinstance(node.target, ast.Subscript):
        return False
    made = {name: n.value for n in inner if isinstance(n, ast.Assign) and (name := key(n.targets[0]))}
    index = made.get(key(node.target.slice), node.target.slice)
    behind = [n.slice for n in walk(index) if isinstance(n, ast.Subscript) and is_op(n.slice, ast.Sub)]
    return any(key(place.left) in lead and not isinstance(place.right, ast.Constant) for place in behind)


def _jumps_on(node: ast.AST) -> str:
    # the name that an assignment only moves forward: `left = max(left, last + 1)`, `left = last[x] + 1`
    if not isinstance(node, ast.Assign):
        return ""
    name, value = key(node.targets[0]), node.value
    on = False
    if isinstance(value, ast.Call) and key(value.func) == "max":
        on = any(key(a) == name for a in value.args) and any(isinstance(a, ast.BinOp) for a in value.args)
    elif is_op(value, ast.Add) and is_number(value.right, 1):
        on = isinstance(value.left, ast.Subscript) or method_owner(value.left, "pop", "get") is not None
    return name if on else ""


def _trails(scene: Scene, inner: list[ast.AST], name: str, lead: set[str]) -> bool:
    # whether `lead - name` is a length, or `name` .. `lead` a slice, or `name` an index of the data.
    if any(is_op(n, ast.Sub) and name in names(n.right) and names(n.left) & lead for n in scene.nodes):
        return True
    for node in inner:
        if isinstance(node, ast.Slice) and name in names(node.lower) and names(node.upper) & lead:
            return True
        body = node.body if isinstance(node, ast.While) and steps(node.body).get(name) == {1} else []
        if any(isinstance(n, ast.Subscript) and key(n.slice) == name for n in nodes_in(body)):
            return True
    return False


def _item_moves(scene: Scene) -> Iterator[str]:
    # `transpose`, `cycle`, `reversed_part`
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
    # `m[i][j], m[j][i] = m[j][i], m[i][j]`
    places = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else []
    if len(places) != 2 or not isinstance(node.value, ast.Tuple):
        return False
    first, second = ([key(index) for index in indices(place)] for place in places)
    return len(first) == 2 and bool(first[0]) and first == second[::-1] and first[0] != first[1]


def _goes_round(scene: Scene, node: ast.Assign) -> bool:
    # three or more places change items at once, or one changes with what is carried: `a[i], held = held, a[i]`
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
    # `held = m[a]; m[a] = m[b]; m[b] = m[c]; ...`: each place takes over what the next one held
    moved = [s for s in body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Subscript)]
    links = [isinstance(a.value, ast.Subscript) and same(a.value, b.targets[0]) for a, b in pairwise(moved)]
    return sum(links) > 1


def _turns_a_part(node: ast.Assign) -> bool:
    # `a[i:j] = reversed(a[i:j])`, `a[i:j] = a[i:j][::-1]`
    place = node.targets[0]
    if not isinstance(place, ast.Subscript) or not isinstance(place.slice, ast.Slice):
        return False
    if place.slice.lower is None and place.slice.upper is None:
        return False
    back = any(is_call(n, "reversed") for n in walk(node.value))
    back |= any(isinstance(n, ast.Slice) and isinstance(n.step, ast.UnaryOp) for n in walk(node.value))
    return back and any(same(part, place.value) for part in walk(node.value))


def _turns_round(loop: ast.While) -> bool:
    # two indices towards each other that exchange their items in every round
    moved = steps(loop.body)
    for stmt in loop.body:
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Tuple):
            places = [t for t, v in pairs(stmt) if isinstance(t, ast.Subscript) and isinstance(v, ast.Subscript)]
            ways = [moved.get(key(place.slice), set()) for place in places]
            if len(ways) == 2 and {1} in ways and {-1} in ways:
                return True
    return False
