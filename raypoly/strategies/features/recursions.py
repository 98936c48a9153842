"""What recursion is for: a memoised recurrence, search of a graph or tree, backtracking, divide and conquer, plain."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from raypoly.strategies.features.backtracking import collects, pruned, undoes
from raypoly.strategies.features.index_moves import middle
from raypoly.strategies.features.memos import is_cached, remembers
from raypoly.strategies.features.scene import ORDER, Scene, is_call, is_number, key, method_owner, names, same
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
                own = [n for n in ast.walk(function) if is_call(n, name)]
                if pruned(scene, function, own, kind == "backtrack"):
                    yield "pruned"
    loops = [list(ast.walk(n)) for n in scene.nodes if isinstance(n, ast.While)]
    if any(_splits_by_value(inner) and _by_order(inner) for inner in loops):
        yield "partition"
    if not scene.recursive and _narrows(scene):
        yield "partition"
    if any(called(call) == "gcd" and not scene.repeated(call) for call in scene.calls if "gcd" not in scene.functions):
        yield "gcd"


def _pairs_only(call: ast.Call) -> bool:
    """Whether a call stands for a fixed number of nested loops."""
    if called(call) == "product":
        return not call.keywords
    size = call.args[1] if len(call.args) > 1 else None
    return isinstance(size, ast.Constant) and isinstance(size.value, int) and size.value <= 3


def _kind(scene: Scene, name: str, function: ast.AST) -> str:
    inner = list(ast.walk(function))
    calls = [n for n in inner if isinstance(n, ast.Call) and called(n) in scene.recursive]
    own = [call for call in calls if called(call) == name] or calls
    if is_cached(scene, name, function) or remembers(scene, inner, own):
        return "memo"
    if any(isinstance(n, ast.Attribute) and n.attr in _CHILDREN for call in own for n in ast.walk(call)):
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
    if _remainder(own, function):
        return "gcd"
    if recurses_once(function, own) and not any(
        isinstance(n, ast.Attribute) and n.attr == "next" for c in own for n in ast.walk(c)
    ):
        return "linear_recursion"
    return "recursion"


def _remainder(calls: list[ast.Call], function: ast.AST) -> bool:
    """`f(b, a % b)`."""
    return (
        len(calls) == 1
        and len(calls[0].args) == 2
        and any(
            isinstance(arg, ast.BinOp) and isinstance(arg.op, ast.Mod) and same(arg.right, calls[0].args[0])
            for arg in calls[0].args
        )
    )


def recurses_once(function: ast.AST, calls: list[ast.Call]) -> bool:
    """Whether no path through the function makes more than one recursive call: a loop written as recursion."""
    ids = {id(call) for call in calls}

    def most(node: ast.AST) -> int:
        if isinstance(node, (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            return 2 * sum(most(child) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.IfExp):
            return most(node.test) + max(most(node.body), most(node.orelse))
        if isinstance(node, ast.If):
            return most(node.test) + max(block(node.body), block(node.orelse))
        return (id(node) in ids) + sum(most(child) for child in ast.iter_child_nodes(node))

    def block(body: list[ast.stmt]) -> int:
        """The longest of the ways through: one that returns ends there."""
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
    """Two or more filters of one list by order against one pivot, or Lomuto's and Hoare's swaps."""
    filters = [n for n in inner if isinstance(n, ast.ListComp) and n.generators[0].ifs and isinstance(n.elt, ast.Name)]
    return len(filters) >= 2 and all(isinstance(g.generators[0].ifs[0], ast.Compare) for g in filters)


def _by_order(inner: list[ast.AST]) -> bool:
    """Whether a filter keeps what is less, or more, than one name."""
    return any(
        isinstance(n, ast.ListComp)
        and n.generators[0].ifs
        and isinstance(test := n.generators[0].ifs[0], ast.Compare)
        and isinstance(test.ops[0], (ast.Lt, ast.Gt))
        and isinstance(test.comparators[0], ast.Name)
        for n in inner
    )


def _swaps_in_order(inner: list[ast.AST]) -> bool:
    """A loop that swaps two items where one compares in order with a pivot."""
    return any(
        isinstance(n, ast.If)
        and isinstance(n.test, ast.Compare)
        and isinstance(n.test.ops[0], ORDER)
        and any(is_swap(m) for m in ast.walk(n))
        for loop in inner
        if isinstance(loop, (ast.For, ast.While))
        for n in ast.walk(loop)
    )


def is_swap(node: ast.AST) -> bool:
    """`a[i], a[j] = a[j], a[i]`."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and all(isinstance(part, ast.Subscript) for part in (*node.targets[0].elts, *node.value.elts))
    )


def _narrows(scene: Scene) -> bool:
    """Quickselect as a loop: swaps in order, and an end that is set beside the pivot's place."""
    if not _swaps_in_order(scene.nodes):
        return False
    for loop in scene.nodes:
        if isinstance(loop, ast.While):
            ends = names(loop.test)
            for node in ast.walk(loop):
                if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.BinOp):
                    continue
                end, from_name = key(node.targets[0]), key(node.value.left)
                if end in ends and from_name not in {"", end} and is_number(node.value.right, 1):
                    return True
    return False


def _marks(inner: list[ast.AST]) -> bool:
    """Places are marked as seen in something that outlives the call."""
    for node in inner:
        if method_owner(node, "add"):
            return True
        if not isinstance(node, ast.Assign) or not isinstance(node.value, (ast.Constant, ast.UnaryOp, ast.Name)):
            continue
        if any(isinstance(t, ast.Subscript) and not isinstance(t.slice, ast.Slice) for t in node.targets):
            return True
    return False


def _halves(inner: list[ast.AST], calls: list[ast.Call], function: ast.AST) -> bool:
    """The range, list or number that a call works on is cut in parts that go to the recursive calls."""
    slices = [
        [a.slice for a in c.args if isinstance(a, ast.Subscript) and isinstance(a.slice, ast.Slice)] for c in calls
    ]
    befores = {name for parts in slices for p in parts if p.lower is None for name in names(p.upper)}
    afters = {name for parts in slices for p in parts if p.upper is None for name in names(p.lower)}
    if befores & afters:
        return True
    mids = {
        key(t) for n in inner if isinstance(n, ast.Assign) for t in n.targets if middle(n.value) or _half(n.value)
    } - {""}
    for call in calls:
        if any(_half(n) for arg in call.args for n in ast.walk(arg)):
            return True
        if mids & {name for arg in call.args for name in names(arg)}:
            return True
    args = function.args if isinstance(function, (ast.FunctionDef, ast.Lambda)) else None
    mine = [arg.arg for arg in args.args] if args else []
    for first in calls:
        for second in calls:
            if first is not second and len(first.args) == len(second.args) >= 2:
                offset = len(mine) - len(first.args)
                kept = [[i for i, a in enumerate(c.args) if key(a) == mine[i + offset]] for c in (first, second)]
                cut = [
                    i
                    for i in range(len(first.args) - 1)
                    if i in kept[0] and i + 1 in kept[1] and i + 1 not in kept[0] and i not in kept[1]
                ]
                if offset >= 0 and any(names(first.args[i + 1]) & names(second.args[i]) - set(mine) for i in cut):
                    return True
    return False


def _half(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.FloorDiv, ast.RShift))
        and is_number(node.right, 2 if isinstance(node.op, ast.FloorDiv) else 1)
        and not any(isinstance(part, (ast.BitOr, ast.BitAnd, ast.BitXor)) for part in ast.walk(node.left))
    )
