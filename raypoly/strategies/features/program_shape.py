"""Plain shape of a program: how deep its loops nest, and what it computes with."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from raypoly.strategies.features.index_moves import steps
from raypoly.strategies.features.scene import Scene, key, method_owner, names, nodes_in, walk
from raypoly.strategies.live_code.bindings import children
from raypoly.strategies.live_code.constructs import called
from raypoly.strategies.live_code.folding import constant

_HIDDEN = frozenset(
    {"sum", "min", "max", "any", "all", "count", "index", "find", "reversed", "join", "startswith", "sorted"}
)


def features(scene: Scene) -> Iterator[str]:
    """`depth_0` .. `depth_3`, `regex`, `hidden`."""
    yield f"depth_{min(3, _deepest(scene))}"
    if any(isinstance(n, ast.Attribute) and key(n.value) == "re" for n in scene.nodes):
        yield "regex"
    if any(_is_hidden_loop(scene, call) for call in scene.calls):
        yield "hidden"


def _deepest(scene: Scene) -> int:
    # loops around each other on the way from the entry, through calls of helpers; recursion counts once
    memo: dict[str, int] = {}

    def of(node: ast.AST, path: frozenset[str]) -> int:
        if isinstance(node, (ast.For, ast.While)):
            head = node.iter if isinstance(node, ast.For) else node.test
            amortised = isinstance(node, ast.While) and _amortised(scene, node)
            body = most([*node.body, *([head] if isinstance(node, ast.While) else [])], path)
            return max(of(head, path), body + (0 if amortised else _scales(node)), most(node.orelse, path))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            first = node.generators[0].iter
            parts = [part for part in children(node) if part is not node.generators[0]]
            inner = most([*parts, *node.generators[0].ifs], path)
            return max(of(first, path), inner + sum(_scales(generator) for generator in node.generators))
        inner = most(_children(node), path)
        if isinstance(node, ast.Compare) and (_compares_parts(node) or _looks_through(scene, node)):
            inner += 1
        if isinstance(node, ast.Call):
            loops = _library_loops(scene, node)
            applied = called(node) in ("map", "filter", "reduce") and bool(node.args)
            inner = max(inner, loops + (of(node.args[0], path) if applied else 0))
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in scene.functions and name not in path:
            if name not in memo:
                body_of = getattr(scene.functions[name], "body", [])
                memo[name] = most(body_of if isinstance(body_of, list) else [body_of], path | {name})
            inner += memo[name]
        return inner

    def most(nodes: Sequence[ast.AST], path: frozenset[str]) -> int:
        return max((of(node, path) for node in nodes), default=0)

    return of(scene.tree, frozenset())


def _compares_parts(node: ast.Compare) -> bool:
    # `s[i : i + k] == t`: letter by letter, said at once
    parts = [part for part in (node.left, *node.comparators) if isinstance(part, ast.Subscript)]
    return isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and any(
        isinstance(part.slice, ast.Slice) and names(part.slice) for part in parts
    )


def _looks_through(scene: Scene, node: ast.Compare) -> bool:
    # `x in row`, where the row is one of many: a loop said at once
    if not isinstance(node.ops[0], (ast.In, ast.NotIn)) or not isinstance(node.comparators[0], ast.Name):
        return False
    loops = [loop for up in scene.around(node) for loop in (up, *getattr(up, "generators", ()))]
    return any(
        isinstance(loop, (ast.For, ast.comprehension)) and key(loop.target) == node.comparators[0].id for loop in loops
    )


def _library_loops(scene: Scene, call: ast.Call) -> int:
    # loops that a library call stands for: `sum(xs)`, `map(f, xs)`, `s.find(t)`, `combinations(xs, 2)`
    name = called(call)
    if name in scene.functions:
        return 0
    if name == "combinations" and len(call.args) > 1:
        size = constant(call.args[1])
        return size - 1 if isinstance(size, int) and size > 1 else 0
    if name in ("map", "filter", "reduce"):
        return 1
    if name in ("sum", "min", "max", "any", "all") and len(call.args) == 1:
        return int(isinstance(call.args[0], (ast.Name, ast.Subscript, ast.Attribute)))
    return int(name in ("find", "index", "count", "startswith") and isinstance(call.func, ast.Attribute))


def _amortised(scene: Scene, loop: ast.While) -> bool:
    # A loop inside a loop that goes on where it stopped: in all it makes no more rounds than the input is long
    outer = scene.loops(loop)
    if not outer:
        return False
    taken = {key(owner) for n in nodes_in(loop.body) if (owner := method_owner(n, "pop", "popleft"))} - {""}
    moved = set(steps(loop.body)) & names(loop.test) | taken & {key(n) for n in walk(loop.test)}
    inside = {id(n) for n in walk(loop)}
    stored = [n for n in walk(outer[0]) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return bool(moved - {n.id for n in stored if id(n) not in inside})


def _children(node: ast.AST) -> list[ast.AST]:
    # what runs where it stands: the body of a function inside another runs where it is called, a handler seldom
    elsewhere: tuple[type[ast.AST], ...] = (ast.ExceptHandler,)
    if isinstance(node, ast.FunctionDef):
        elsewhere = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [child for child in children(node) if not isinstance(child, elsewhere)]


def _scales(loop: ast.For | ast.While | ast.comprehension) -> int:
    # 1 for a loop whose rounds depend on the input, 0 for one that is written out or ends in its first round
    if isinstance(loop, ast.While):
        return 0 if loop.body and isinstance(loop.body[-1], (ast.Return, ast.Break)) else 1
    source = loop.iter
    if isinstance(source, ast.Call) and key(source.func) == "range":
        bounds = [constant(arg) for arg in source.args]
        if all(isinstance(bound, int) for bound in bounds):
            return 0 if len(range(*[b for b in bounds if isinstance(b, int)])) <= 64 else 1
    if isinstance(source, (ast.List, ast.Tuple, ast.Set)) and len(source.elts) <= 16:
        return 0  # written out, not scaled with the input
    if isinstance(loop, ast.For) and loop.body and isinstance(loop.body[-1], (ast.Return, ast.Break)):
        return 0
    return 1


def _is_hidden_loop(scene: Scene, call: ast.Call) -> bool:
    # A library call inside a loop that goes over a part of the data again
    if called(call) not in _HIDDEN or not scene.loops(call) or len(call.args) != 1:
        return False
    arguments = [*call.args, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
    return any(
        isinstance(arg, (ast.ListComp, ast.GeneratorExp))
        or (isinstance(arg, ast.Subscript) and any(isinstance(n, ast.Slice) for n in walk(arg)))
        for arg in arguments
    )
