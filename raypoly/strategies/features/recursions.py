"""What recursion is for: a memoised recurrence, search of a graph or tree, backtracking, divide and conquer, plain.

Memoised: by a decorator, or by a table that is written with results and read to return early.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import permutations

from raypoly.strategies.features.backtracking import collects, pruned, undoes
from raypoly.strategies.features.index_moves import middle
from raypoly.strategies.features.scene import (
    ORDER,
    Scene,
    contains,
    halved,
    is_call,
    is_number,
    is_op,
    key,
    method_owner,
    names,
    nodes_in,
    position,
    same,
    walk,
)
from raypoly.strategies.live_code.bindings import COMPREHENSIONS, children
from raypoly.strategies.live_code.constructs import called

_CHILDREN = frozenset({"left", "right", "children", "neighbors", "child"})
_ENUMERATION = frozenset({"permutations", "combinations", "combinations_with_replacement", "product"})


def features(scene: Scene) -> Iterator[str]:
    """`memo`, `dfs`, `backtrack`, `divide`, `partition`, `halving_recursion`, `recursion`."""
    for call in scene.calls:
        if called(call) in _ENUMERATION and not _pairs_only(call):
            yield "backtrack"
    for name in sorted(scene.recursive):
        function = scene.functions.get(name)
        if function is not None:
            kind = _kind(scene, name, function)
            yield kind
            if kind in ("backtrack", "recursion"):
                own = [n for n in walk(function) if is_call(n, name)]
                if pruned(scene, function, own, kind == "backtrack"):
                    yield "pruned"
    loops = [walk(n) for n in scene.nodes if isinstance(n, ast.While)]
    if any(_splits_by_value(inner) and _by_order(inner) for inner in loops):
        yield "partition"
    if not scene.recursive and _narrows(scene):
        yield "partition"
    if any(called(call) == "gcd" and not scene.repeated(call) for call in scene.calls if "gcd" not in scene.functions):
        yield "gcd"


def _pairs_only(call: ast.Call) -> bool:
    # whether a call stands for a fixed number of nested loops
    if called(call) == "product":
        return not call.keywords
    size = call.args[1] if len(call.args) > 1 else None
    return isinstance(size, ast.Constant) and isinstance(size.value, int) and size.value <= 3


def _kind(scene: Scene, name: str, function: ast.AST) -> str:
    inner = walk(function)
    calls = [n for n in inner if isinstance(n, ast.Call) and called(n) in scene.recursive]
    own = [call for call in calls if called(call) == name] or calls
    if _is_cached(scene, name, function) or _remembers(scene, inner, own):
        return "memo"
    if any(isinstance(n, ast.Attribute) and n.attr in _CHILDREN for call in own for n in walk(call)):
        return "dfs"
    if undoes(inner, own):
        return "backtrack"
    if _splits_by_value(inner) or _swaps_in_order(inner):
        return "partition"
    if _halves(inner, own, function):
        if not recurses_once(function, own):
            return "divide"
        ranges = any(len(middle(n.value)) == 2 for n in inner if isinstance(n, (ast.Assign, ast.NamedExpr)) and n.value)
        return "binary_search" if ranges else "halving_recursion"
    if _marks(inner):
        return "dfs"
    if collects(inner, own):
        return "backtrack"
    if _remainder(own):
        return "gcd"
    if recurses_once(function, own) and not any(
        isinstance(n, ast.Attribute) and n.attr == "next" for c in own for n in walk(c)
    ):
        return "linear_recursion"
    return "recursion"


def _is_cached(scene: Scene, name: str, function: ast.AST) -> bool:
    # whether a decorator caches the function, or it is handed to something that does
    said = nodes_in(getattr(function, "decorator_list", []))
    if any("cache" in getattr(n, "id", "") or "cache" in getattr(n, "attr", "") for n in said):
        return True
    makers = [(c, made) for c in scene.calls for made in (c, c.func) if isinstance(made, ast.Call)]
    return any("cache" in called(made) and any(name in names(a) for a in c.args) for c, made in makers)


def _remembers(scene: Scene, inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    # A table that outlives the call, is written with results and read to return early
    if _keeps_failures(inner, calls):
        return True
    answers = {id(c) for c in calls}
    results = _results(inner, answers)
    values = nodes_in(n.value for n in inner if isinstance(n, ast.Return) and n.value)
    returned = {_owner(n) for n in values if isinstance(n, (ast.Subscript, ast.Attribute))} - {""}
    tests = [n.test if isinstance(n, ast.If) else n for n in inner if isinstance(n, (ast.Compare, ast.If))]
    asked = {name for test in tests for name in {_owner(n) for n in walk(test)} | names(test)}
    return any(
        isinstance(target, ast.Subscript)
        and _owner(target) in returned & asked
        and (contains(n.value, answers) or names(n.value) & results)
        for n in inner
        if isinstance(n, ast.Assign)
        for target in n.targets
    )


def _keeps_failures(inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    # A set of what led nowhere: asked first, and added to only after the recursive calls
    places = [position(call) for call in calls]
    adds = [n for n in inner if isinstance(n, ast.Call) and method_owner(n, "add") and len(n.args) == 1]
    marks = any(isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript) for n in inner)
    if not places or marks or any(position(n) <= max(places) for n in adds):
        return False
    asked = [
        n for n in inner if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.In) and position(n) < min(places)
    ]
    return bool({key(n.comparators[0]) for n in asked} & {key(method_owner(n, "add")) for n in adds})


def _results(inner: list[ast.AST], answers: set[int]) -> set[str]:
    # names whose value comes from what the recursive calls gave
    made = [n for n in inner if isinstance(n, (ast.Assign, ast.AugAssign, ast.NamedExpr))]
    heads = [(n, n.test if isinstance(n, ast.If) else n.iter) for n in inner if isinstance(n, (ast.If, ast.For))]
    steered = nodes_in(n for n, head in heads if contains(head, answers))
    flow = {name for n in steered if isinstance(n, ast.Assign) for t in n.targets for name in names(t)}
    while True:
        more = {
            name
            for n in made
            if contains(n.value, answers) or names(n.value) & flow
            for t in (n.targets if isinstance(n, ast.Assign) else [n.target])
            if not isinstance(t, ast.Subscript)
            for name in names(t)
        } - flow
        if not more:
            return flow
        flow |= more


def _owner(node: ast.AST) -> str:
    # the container at the bottom of a chain of subscripts: `t` of `t[i][j]` and of `t.get`
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute) and node.attr == "get":
        node = node.value
    return key(node)


def _remainder(calls: list[ast.Call]) -> bool:
    # `f(b, a % b)`
    args = calls[0].args if len(calls) == 1 else []
    return len(args) == 2 and any(is_op(arg, ast.Mod) and same(arg.right, args[0]) for arg in args)


def recurses_once(function: ast.AST, calls: list[ast.Call]) -> bool:
    """Whether no path makes more than one recursive call: a loop written as recursion."""
    ids = {id(call) for call in calls}

    def most(node: ast.AST) -> int:
        if isinstance(node, ast.IfExp):
            return most(node.test) + max(most(node.body), most(node.orelse))
        if isinstance(node, ast.If):
            return most(node.test) + max(block(node.body), block(node.orelse))
        below = sum(most(child) for child in children(node))
        return 2 * below if isinstance(node, (ast.For, ast.While, *COMPREHENSIONS)) else (id(node) in ids) + below

    def block(body: list[ast.stmt]) -> int:
        total, worst = 0, 0
        for stmt in body:
            if isinstance(stmt, ast.If) and stmt.body and isinstance(stmt.body[-1], ast.Return) and not stmt.orelse:
                worst = max(worst, total + most(stmt.test) + block(stmt.body))
                total += most(stmt.test)
            else:
                total += most(stmt)
        return max(worst, total)

    body = getattr(function, "body", [])
    return (block(body) if isinstance(body, list) else most(body)) <= 1


def _splits_by_value(inner: list[ast.AST]) -> bool:
    # two or more filters of one list by comparing with a pivot
    comps = [n for n in inner if isinstance(n, ast.ListComp) and isinstance(n.elt, ast.Name)]
    filters = [comp.generators[0].ifs[0] for comp in comps if comp.generators[0].ifs]
    return len(filters) >= 2 and all(isinstance(test, ast.Compare) for test in filters)


def _by_order(inner: list[ast.AST]) -> bool:
    # whether a filter keeps what is less, or more, than one name
    tests = [test for n in inner if isinstance(n, ast.ListComp) for test in n.generators[0].ifs[:1]]
    return any(
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], (ast.Lt, ast.Gt))
        and isinstance(test.comparators[0], ast.Name)
        for test in tests
    )


def _swaps_in_order(inner: list[ast.AST]) -> bool:
    # A loop that swaps two items where one compares in order with a pivot
    looped = nodes_in(loop for loop in inner if isinstance(loop, (ast.For, ast.While)))
    tests = [(n, n.test.ops[0]) for n in looped if isinstance(n, ast.If) and isinstance(n.test, ast.Compare)]
    return any(isinstance(op, ORDER) and any(map(_is_swap, walk(n))) for n, op in tests)


def _is_swap(node: ast.AST) -> bool:
    # `a[i], a[j] = a[j], a[i]`
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and all(isinstance(part, ast.Subscript) for part in (*node.targets[0].elts, *node.value.elts))
    )


def _narrows(scene: Scene) -> bool:
    # quickselect as a loop: swaps in order, and an end that is set beside the pivot's place
    if not _swaps_in_order(scene.nodes):
        return False
    for loop in scene.whiles:
        for node in walk(loop):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and is_number(node.value.right, 1):
                end = key(node.targets[0])
                if end in names(loop.test) and key(node.value.left) not in {"", end}:
                    return True
    return False


def _marks(inner: list[ast.AST]) -> bool:
    # places are marked as seen in something that outlives the call
    kinds = (ast.Constant, ast.UnaryOp, ast.Name)
    places = [t for n in inner if isinstance(n, ast.Assign) and isinstance(n.value, kinds) for t in n.targets]
    marks = [place for place in places if isinstance(place, ast.Subscript) and not isinstance(place.slice, ast.Slice)]
    return bool(marks) or any(method_owner(n, "add") for n in inner)


def _halves(inner: list[ast.AST], calls: list[ast.Call], function: ast.AST) -> bool:
    # the range, list or number that a call works on is cut in parts that go to the recursive calls
    given = [arg for call in calls for arg in call.args]
    parts = [a.slice for a in given if isinstance(a, ast.Subscript) and isinstance(a.slice, ast.Slice)]
    befores = {name for part in parts if part.lower is None for name in names(part.upper)}
    if befores & {name for part in parts if part.upper is None for name in names(part.lower)}:
        return True
    halves = [n for n in inner if isinstance(n, ast.Assign) and (middle(n.value) or _half(n.value))]
    mids = {key(t) for n in halves for t in n.targets} - {""}
    if any(_half(n) for n in nodes_in(given)) or any(mids & names(arg) for arg in given):
        return True
    mine = [arg.arg for arg in function.args.args] if isinstance(function, (ast.FunctionDef, ast.Lambda)) else []
    for first, second in permutations(calls, 2):
        offset = len(mine) - len(first.args)
        if offset >= 0 and len(first.args) == len(second.args) >= 2:
            one, two = ([key(a) == mine[i + offset] for i, a in enumerate(call.args)] for call in (first, second))
            cuts = [(one[i : i + 2], two[i : i + 2]) == ([True, False], [False, True]) for i in range(len(one) - 1)]
            shared = [names(a) & names(b) - set(mine) for a, b in zip(first.args[1:], second.args, strict=False)]
            if any(cut and bool(both) for cut, both in zip(cuts, shared, strict=True)):
                return True
    return False


def _half(node: ast.AST) -> bool:
    left = halved(node)
    bitwise = (ast.BitOr, ast.BitAnd, ast.BitXor)
    return left is not None and not any(is_op(part, *bitwise) for part in walk(left))
