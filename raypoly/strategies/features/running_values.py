"""Running values: a state and its next one, prefix sums, difference arrays, sieves, Euclid, string automata.

Also recurrences in a few variables made from each other, begun anew where they do harm, or kept in the bits of a
number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.scene import (
    ORDER,
    Scene,
    assigned,
    is_call,
    is_number,
    is_op,
    key,
    names,
    nodes_in,
    pairs,
    same,
    stored_value,
    walk,
)
from raypoly.strategies.live_code.bindings import reach
from raypoly.strategies.live_code.constructs import called


def features(scene: Scene) -> Iterator[str]:
    """`dp`, `prefix`, `sieve`, `gcd`, `swap`, `rolling_hash`, `newton`, `binomial`, `kmp`, `extend`, `fenwick`."""
    for node in scene.nodes:
        if isinstance(node, ast.Assign) and scene.loops(node):
            yield from _scalar(node)
        if isinstance(node, (ast.Assign, ast.AugAssign)) and scene.loops(node) and _shifts_itself(node):
            yield "dp"
        if isinstance(node, (ast.For, ast.Slice, ast.Call)) and _strides(scene, node):
            yield "sieve"
        if is_op(node, ast.BitAnd) and _lowest_bit(scene, node):
            yield "fenwick"
    for loop in scene.both_loops:
        if _subtracts(loop):
            yield "gcd"
        if _turns_on_itself(loop) or _begins_anew(loop):
            yield "dp"
        if isinstance(loop, ast.While):
            yield from _automaton(loop)
    for call in scene.calls:
        if called(call) == "accumulate" and "accumulate" in scene.library:
            yield "dp" if any(_chooses(arg) for arg in call.args[1:]) else "prefix"
    for name in sorted(scene.done_to):
        if _keeps_running(scene, name) or _ups_and_downs(scene, name):
            yield "prefix"


def _strides(scene: Scene, node: ast.AST) -> bool:
    # crossing out multiples: `for k in range(i * i, n, i): t[k] = False`, `t[i * i :: i] = ...`, `range` in a set
    if isinstance(node, ast.Slice):
        place = scene.parent.get(id(node))
        stored = isinstance(place, ast.Subscript) and isinstance(place.ctx, ast.Store)
        return stored and isinstance(node.step, ast.Name) and bool(scene.loops(node))
    source = node.iter if isinstance(node, ast.For) else next(iter(getattr(node, "args", [])), None)
    if not isinstance(source, ast.Call) or key(source.func) != "range" or len(source.args) != 3:
        return False
    step = key(source.args[2])
    outer = [names(loop.target if isinstance(loop, ast.For) else loop.test) for loop in scene.loops(node)]
    if step not in names(source.args[0]) or not any(step in moved for moved in outer):
        return False
    if not isinstance(node, ast.For):
        return is_call(node, "update")
    return any(
        is_call(n, "add", "discard")
        or (isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant) and isinstance(n.targets[0], ast.Subscript))
        for n in nodes_in(node.body)
    )


def _subtracts(loop: ast.For | ast.While) -> bool:
    # euclid by subtraction: each of two names is made less by the other
    less = [n for n in nodes_in(loop.body) if isinstance(n, ast.AugAssign) and isinstance(n.op, (ast.Sub, ast.Mod))]
    taken = {(key(n.target), key(n.value)) for n in less}
    return any(a and b and (b, a) in taken for a, b in taken)


def _chooses(node: ast.expr) -> bool:
    # A step that takes the better of going on and starting anew
    body = node.body if isinstance(node, ast.Lambda) else None
    return is_call(body, "max", "min") and any(isinstance(a, ast.BinOp) for a in body.args)


def _keeps_running(scene: Scene, name: str) -> bool:
    # A list that is read later and holds a running sum, product or extreme at each place
    if not scene.kinds(name) & {"load", "each"} or any(
        isinstance(v, (ast.Dict, ast.Call)) for v in scene.made.get(name, [])
    ):
        return False
    for node in scene.uses(name, "append", "store"):
        value = stored_value(scene.statement(node), node)
        loops = scene.loops(node)
        if isinstance(value, ast.Name) and loops and any(_runs_on(n, value.id) for n in walk(loops[0])):
            return True
    return False


def _runs_on(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign) and key(node.target) == name:
        return isinstance(node.op, (ast.Add, ast.Mult)) and not isinstance(node.value, ast.Constant)
    if not isinstance(node, ast.Assign) or key(node.targets[0]) != name:
        return False
    return is_call(node.value, "max", "min") and any(key(arg) == name for arg in node.value.args)


def _ups_and_downs(scene: Scene, name: str) -> bool:
    # A difference array: in one loop something is added at one place and taken away at another
    places = [(n, scene.parent[id(n)]) for n in scene.uses(name, "add_to") if isinstance(n, ast.Subscript)]
    ups = [(n, s) for n, s in places if isinstance(s, ast.AugAssign) and isinstance(s.op, ast.Add)]
    downs = [(n, s) for n, s in places if isinstance(s, ast.AugAssign) and isinstance(s.op, ast.Sub)]
    return any(
        same(up.value, down.value)
        and not same(at.slice, other.slice)
        and scene.loops(at)[:1] == scene.loops(other)[:1] != []
        for at, up in ups
        for other, down in downs
    )


def _scalar(node: ast.Assign) -> Iterator[str]:
    # what one assignment in a loop makes of names that it reads itself
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from _exchange(target.elts, value.elts)
    name = key(target)
    if not name or "." in name:
        return
    if is_call(value, "max", "min") and len(value.args) >= 2:
        sums = [a for a in value.args if is_op(a, ast.Add, ast.Mult)]
        chains = [a for a in value.args if is_op(a, ast.Sub)]
        if any(name in {key(a.left), key(a.right)} for a in sums) or any(_first_term(a.left) == name for a in chains):
            yield "dp"
    if is_op(value, ast.Add) and _floored(value, name):
        yield "dp"
    if isinstance(value, ast.IfExp) and name in names(value.test):
        sides = [name in names(side) and isinstance(side, ast.BinOp) for side in (value.body, value.orelse)]
        if sides[0] != sides[1] and not any(isinstance(n, ast.Constant) for n in (value.body, value.orelse)):
            yield "dp"
    if is_op(value, ast.Mod) and _is_hash_step(value.left, name):
        yield "rolling_hash"
    factor = value.left if is_op(value, ast.FloorDiv, ast.Div) and not isinstance(value.right, ast.Constant) else None
    if is_op(factor, ast.Mult) and key(factor.left) == name:  # `c * (n - i) // (i + 1)`, from the coefficient before it
        yield "binomial"
    divides = [n for n in walk(value) if is_op(n, ast.FloorDiv, ast.Div)]
    if is_op(value, ast.FloorDiv, ast.Div, ast.Mult) and any(key(n.right) == name for n in divides):
        yield "newton"


def _exchange(targets: list[ast.expr], values: list[ast.expr]) -> Iterator[str]:
    # `a[i], a[j] = a[j], a[i]`; `a, b = b, a + b`; `a, b = b, a % b`; `take, skip = skip + x, max(take, skip)`
    if all(isinstance(t, ast.Subscript) for t in targets):
        yield "swap"
    mine = [key(t) for t in targets]
    shifted = [i for i, v in enumerate(values) if key(v) in mine and key(v) != mine[i]]
    made = [v for i, v in enumerate(values) if i not in shifted and names(v) & set(mine)]
    linked = any(isinstance(n, ast.Attribute) for v in values for n in walk(v))
    if shifted and made and all(mine) and not linked:
        parts = [n for v in made for n in walk(v) if isinstance(n, ast.BinOp)]
        rests = [n for n in parts if isinstance(n.op, (ast.Mod, ast.FloorDiv, ast.Sub)) and names(n.right) & set(mine)]
        yield "gcd" if rests else "dp"
    elif all(mine) and not shifted and _crossed(mine, values):
        yield "dp"


def _first_term(node: ast.expr) -> str:
    # `here` of `here + x - y`
    while is_op(node, ast.Add, ast.Sub):
        node = node.left
    return key(node)


def _floored(value: ast.BinOp, name: str) -> bool:
    # `max(here, 0) + x`: Kadane's step with the choice first
    return any(
        is_call(side, "max")
        and {key(arg) for arg in side.args} == {name, ""}
        and any(is_number(arg, 0) for arg in side.args)
        for side in (value.left, value.right)
    )


def _crossed(mine: list[str], values: list[ast.expr]) -> bool:
    # two states made from each other: `take, skip = skip + x, max(take, skip)`
    crossed = [v for i, v in enumerate(values) if names(v) & (set(mine) - {mine[i]})]
    chosen = any(is_call(n, "max", "min") for n in nodes_in(values))
    return chosen and len(crossed) == len(values)


def _is_hash_step(node: ast.expr, name: str) -> bool:
    parts = walk(node)
    return any(is_op(n, ast.Mult) and key(n.left) == name for n in parts) and any(is_call(n, "ord") for n in parts)


def _automaton(loop: ast.While) -> Iterator[str]:
    # `while j and s[i] != p[j]: j = f[j - 1]`; `while t[i + r[i]] == t[i - r[i]]: r[i] += 1`
    for node in walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            name, index = key(node.targets[0]), node.value.slice
            back = is_op(index, ast.Sub) and key(index.left) == name and is_number(index.right, 1)
            if back and name in names(loop.test):
                yield "kmp"
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript) and is_number(node.value, 1):
            places = [n.slice for n in walk(loop.test) if isinstance(n, ast.Subscript)]
            if any(same(part, node.target) for part in nodes_in(places)):
                yield "extend"


def _lowest_bit(scene: Scene, node: ast.BinOp) -> bool:
    # `i & -i` that steps through a table
    if not isinstance(node.right, ast.UnaryOp) or not isinstance(node.right.op, ast.USub):
        return False
    stepping = isinstance(scene.parent.get(id(node)), (ast.AugAssign, ast.BinOp))
    tables = [n for n in scene.nodes if isinstance(n, ast.Subscript) and key(n.slice) in names(node)]
    return stepping and bool(tables) and same(node.right.operand, node.left)


def _shifts_itself(node: ast.Assign | ast.AugAssign) -> bool:
    # `sums |= sums << x`: a table of truths in the bits of one number
    name = key(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    joined = isinstance(node.op if isinstance(node, ast.AugAssign) else getattr(node.value, "op", None), ast.BitOr)
    shifted = [n for n in walk(node.value) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.LShift)]
    return joined and any(key(n.left) == name != "" and not isinstance(n.right, ast.Constant) for n in shifted)


def _begins_anew(loop: ast.For | ast.While) -> bool:
    # kadane in words: a running sum that is dropped where it does harm, `if here < 0: here = 0`
    inner = nodes_in(loop.body)
    sums = {name for n in inner for name in _adds_to(n)}
    for node in inner:
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        left, order = node.test.left, isinstance(node.test.ops[0], ORDER)
        weighed = {key(left)} if is_number(node.test.comparators[0], 0) else _summed_with(left, node.test)
        for name in (weighed & sums) - {""} if order else ():
            inside = [p for s in (*node.body, *node.orelse) if isinstance(s, ast.Assign) for p in pairs(s)]
            if any(key(target) == name and name not in names(value) for target, value in inside):
                return True
    return False


def _adds_to(node: ast.AST) -> Iterator[str]:
    # the name to which something that is no constant is added
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and not isinstance(node.value, ast.Constant):
        yield key(node.target)
    for target, value in assigned([node]):
        if is_op(value, ast.Add) and key(value.left) == key(target) and not isinstance(value.right, ast.Constant):
            yield key(target)


def _summed_with(left: ast.expr, test: ast.Compare) -> set[str]:
    # `here` of `here + x < x`
    if is_op(left, ast.Add) and key(left.right) == key(test.comparators[0]):
        return {key(left.left)}
    return set()


def _turns_on_itself(loop: ast.For | ast.While) -> bool:
    # rolling variables: two or more scalars are made from each other in each round, by a choice or a sum of two
    made: dict[str, list[ast.expr]] = {}
    for node in nodes_in(loop.body):
        both = assigned([node])
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            both = [(node.target, ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value))]
        for target, value in both:
            if isinstance(target, ast.Name):
                made.setdefault(target.id, []).append(value)
    feeds = {name: set().union(*(names(value) for value in values)) & set(made) for name, values in made.items()}
    for name, values in made.items():
        ring = {other for other in reach(feeds[name], feeds) if name in reach(feeds[other], feeds)}
        if len(ring) > 1 and any(_chosen_or_summed(value, ring, name) for value in values):
            return True
    return False


def _chosen_or_summed(value: ast.expr, ring: set[str], name: str) -> bool:
    if is_call(value, "max", "min"):
        return any(isinstance(arg, (ast.BinOp, ast.Name)) and names(arg) & (ring - {name}) for arg in value.args)
    value = value.left if is_op(value, ast.Mod) else value
    plain = not any(isinstance(part, (ast.Subscript, ast.Call)) for part in walk(value))
    return plain and is_op(value, ast.Add) and len(names(value) & ring) > 1
