"""Lookups by key: hash tables under any spelling, buckets, tries, union-find's parents, sorting.

Told by what is done to a container, and where.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.scene import (
    Scene,
    is_call,
    is_op,
    key,
    method_owner,
    names,
    position,
    same,
    spelled,
    walk,
)
from raypoly.strategies.live_code.constructs import called

_HASHES = frozenset({"set", "dict", "Counter", "defaultdict", "OrderedDict", "frozenset", "fromkeys"})


def features(scene: Scene) -> Iterator[str]:
    """`hash`, `bucket`, `union_find`, `quick_find`, `trie`, `sort`, `sorted_output`."""
    named = any(_hashed(scene, name) for name in sorted(scene.done_to))
    if named or any(_hashed_at_once(scene, call) for call in scene.calls):
        yield "hash"
    if any(_buckets(scene, name) for name in sorted(scene.made)):
        yield "bucket"
    if any(_climbs(scene, node) or _follows_parents(scene, node) for node in scene.nodes):
        yield "union_find"
    if any(isinstance(node, ast.For) and _relabels(node) for node in scene.nodes):
        yield "quick_find"
    if any(_descends(scene, node) for node in scene.nodes):
        yield "trie"
    yield from _sorts(scene)


def _hashed(scene: Scene, name: str) -> bool:
    # filled from the input and asked for by key: a set, a dict, a table of counts, or a list searched by value
    kinds, values = scene.kinds(name), scene.made.get(name, [])
    if values and all(scene.loops(value) for value in values) and not _complements(scene, name):
        return False  # made anew in each round: a means of one round, not of the whole
    hashes = (ast.Dict, ast.Set, ast.DictComp, ast.SetComp)
    keyed = any(isinstance(value, hashes) or is_call(value, *_HASHES) for value in values)
    asked = bool(
        kinds & {"in", "get", "difference", "intersection", "isdisjoint", "issubset", "symmetric_difference"}
    ) or (keyed and bool(kinds & {"load", "items", "values", "most_common", "pop_last", "len"}))
    filled = kinds & {"add", "store", "add_to", "setdefault", "update"} or (kinds & {"append"} and "in" in kinds)
    whole = any(_from_data(value) for value in values)
    if keyed and (filled or whole) and asked and not _adjacency(scene, name):
        return True
    if kinds & {"append"} and "in" in kinds and not keyed:
        return any(scene.repeated(node) for node in scene.uses(name, "in"))
    return not keyed and _counts(scene, name)


def _complements(scene: Scene, name: str) -> bool:
    # whether what is asked for is worked out first: `target - x in seen`
    asked = [node.left for node in scene.uses(name, "in") if isinstance(node, ast.Compare)]
    made = [value for node in asked for value in (scene.made.get(key(node), []) if key(node) else [node])]
    return any(is_op(value, ast.Sub) for value in made)


def _adjacency(scene: Scene, name: str) -> bool:
    # A dict of lists that is only filled and gone through: neighbours, or groups
    inner = [scene.parent.get(id(node)) for node in scene.uses(name, "load")]
    grows = any(isinstance(n, ast.Attribute) and n.attr in ("append", "add") for n in inner)
    return grows and not scene.kinds(name) & {"in", "get", "items", "values", "store"}


def _counts(scene: Scene, name: str) -> bool:
    # A list counted up, or ticked off, at an index taken from the data: `c[ord(x) - 97] += 1`, `seen[x] = True`
    for node in scene.uses(name, "add_to", "store"):
        if isinstance(node, ast.Subscript) and _is_value(scene, node.slice):
            owner = scene.parent[id(node)]
            if isinstance(owner, (ast.AugAssign, ast.Assign)) and isinstance(owner.value, (ast.Constant, ast.UnaryOp)):
                return True
    return False


def _is_value(scene: Scene, index: ast.expr) -> bool:
    # whether an index is an element of the data rather than a place in it
    if isinstance(index, ast.Subscript):
        return True
    if any(isinstance(part, ast.Call) and key(part.func) == "ord" for part in walk(index)):
        return True
    used = names(index) | {n for name in names(index) for v in scene.made.get(name, [])[:1] for n in names(v)}
    over = [n for n in scene.around(index) if isinstance(n, ast.For) and names(n.target) & used]
    return any(isinstance(n.iter, (ast.Name, ast.Attribute)) and isinstance(n.target, ast.Name) for n in over)


def _from_data(value: ast.expr) -> bool:
    # whether a set or dict is made of more than constants
    if isinstance(value, (ast.DictComp, ast.SetComp)):
        return True
    return is_call(value, *(_HASHES - {"defaultdict"})) and any(names(arg) for arg in value.args)


def _buckets(scene: Scene, name: str) -> bool:
    # A list of lists, filled at places that come from the data, then gone through in order
    made = [v for v in scene.made[name] if isinstance(v, ast.ListComp) and isinstance(v.elt, (ast.List, ast.Call))]
    fills = [scene.parent.get(id(n)) for n in scene.uses(name, "load")]
    grows = any(isinstance(n, ast.Attribute) and n.attr in ("append", "add") for n in fills)
    return bool(made) and grows and bool(scene.uses(name, "each"))


def _hashed_at_once(scene: Scene, call: ast.Call) -> bool:
    # `len(set(xs))`, `Counter(a) == Counter(b)`, `x in set(xs)`: a hash table without a name
    if called(call) not in {"set", "Counter", "frozenset"} or not any(names(arg) for arg in call.args):
        return False
    if scene.loops(call):
        return False
    owner = scene.parent.get(id(call))
    if isinstance(owner, ast.Call) and call in owner.args:
        return key(owner.func) == "len"
    return not isinstance(owner, (ast.Assign, ast.AugAssign))


def _climbs(scene: Scene, node: ast.AST) -> bool:
    # `while p[x] >= 0: x = p[x]`, and a function of `x` that calls itself with `p[x]` alone
    if isinstance(node, ast.While):
        steps = [(key(n.targets[0]), n.value) for n in walk(node) if isinstance(n, ast.Assign)]
        places = [n for n in walk(node.test) if isinstance(n, ast.Subscript)]
        return any(
            isinstance(value, ast.Subscript) and key(value.slice) == name != "" and any(same(value, p) for p in places)
            for name, value in steps
        )
    if not isinstance(node, ast.Call) or called(node) not in scene.recursive or len(node.args) != 1:
        return False
    function, argument = scene.functions.get(called(node)), node.args[0]
    own = [a.arg for a in function.args.args] if function is not None else []
    inside = scene.function(node) == called(node)
    return inside and isinstance(argument, ast.Subscript) and key(argument.slice) in own[-1:]


def _follows_parents(scene: Scene, node: ast.AST) -> bool:
    # `while p[x] != x: x = p[x]` or `if p[x] != x: p[x] = find(p[x])`: a root is its own parent
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.NotEq, ast.Eq)):
        return False
    for place, name in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
        place = place.value if isinstance(place, ast.NamedExpr) else place
        if isinstance(place, ast.Subscript):
            index = place.slice
        elif isinstance(place, ast.Call) and called(place) in {*scene.functions, "get", "setdefault"} and place.args:
            index = place.args[0]
        else:
            continue
        own_parent = isinstance(name, ast.Name) and same(index, name)
        if own_parent and (_walks_up(scene, node, key(name)) or _calls_up(scene, node, place)):
            return True
    return False


def _walks_up(scene: Scene, node: ast.AST, name: str) -> bool:
    # whether the comparison is a loop's test, and the loop moves the name
    loop = next(iter(scene.loops(node)), None)
    if not isinstance(loop, ast.While) or node not in walk(loop.test):
        return False
    return any(key(t) == name for n in walk(loop) if isinstance(n, ast.Assign) for t in n.targets)


def _calls_up(scene: Scene, node: ast.AST, place: ast.AST) -> bool:
    # whether the function around calls itself with the same place
    where = scene.function(node)
    return where in scene.recursive and any(
        called(call) == where and any(same(arg, place) for arg in call.args) for call in scene.calls
    )


def _descends(scene: Scene, node: ast.AST) -> bool:
    # A loop that goes from a node to its child by a key, where the child is a table itself
    if not isinstance(node, ast.Assign) or not scene.loops(node) or len(node.targets) > 1:
        return False
    name, value = key(node.targets[0]), node.value
    if not name or "." in name:
        return False
    owner = method_owner(value, "setdefault", "get")
    if owner is None:
        owner = value.value if isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice) else None
    if owner is None or (isinstance(owner, ast.Attribute) and key(owner.value) != name):
        return False
    if key(owner.value if isinstance(owner, ast.Attribute) else owner) != name:
        return False
    index = value.slice if isinstance(value, ast.Subscript) else value.args[0] if isinstance(value, ast.Call) else None
    return not isinstance(index, ast.Constant)


def _sorts(scene: Scene) -> Iterator[str]:
    # `sort` where sorting is part of the work; `sorted_output` where it only puts the answer in order
    for call in scene.calls:
        if called(call) == "most_common" and not (call.args and isinstance(call.args[0], ast.Constant)):
            yield "sort"
        if called(call) not in ("sorted", "sort") or called(call) in scene.functions:
            continue
        first = call.args[0] if isinstance(call.func, ast.Name) and call.args else None
        short = isinstance(first, (ast.List, ast.Tuple)) and len(first.elts) <= 4
        if short or (first and _is_choice(scene, first)):
            continue
        decides = any(isinstance(node, ast.Compare) for node in scene.nodes)
        yield "sorted_output" if decides and _is_output(scene, call) else "sort"


def _is_choice(scene: Scene, node: ast.expr) -> bool:
    # whether a name stands for a few items chosen by `combinations`
    loops = [n for n in scene.nodes if isinstance(n, (ast.For, ast.comprehension)) and key(n.target) == key(node) != ""]
    return any(isinstance(n.iter, ast.Call) and called(n.iter) == "combinations" for n in loops)


def _is_output(scene: Scene, call: ast.Call) -> bool:
    up = scene.parent.get(id(call))
    while is_call(up, "list", "join", "tuple"):
        up = scene.parent.get(id(up))
    if isinstance(up, (ast.Return, ast.AugAssign)) or is_call(up, "extend"):
        return True
    if isinstance(call.func, ast.Attribute) and called(call) == "sort" and isinstance(up, ast.Expr):
        name = key(call.func.value)
        later = [n for n in scene.nodes if isinstance(n, ast.Name) and n.id == name and position(n) > position(call)]
        return bool(later) and all(isinstance(scene.parent.get(id(n)), ast.Return) for n in later)
    return False


def _relabels(loop: ast.For) -> bool:
    # union by relabelling: everyone with the old label gets the new one
    for stmt in loop.body:
        if isinstance(stmt, ast.If) and isinstance(stmt.test, ast.Compare) and isinstance(stmt.test.ops[0], ast.Eq):
            places = {spelled(stmt.test.left), spelled(stmt.test.comparators[0])}
            for done in stmt.body:
                place = done.targets[0] if isinstance(done, ast.Assign) and key(done.value) else None
                if isinstance(place, ast.Subscript) and spelled(place) in places:
                    return True
    return False
