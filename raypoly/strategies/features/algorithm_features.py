"""Algorithmic features of a program: what it does with its data, told from live code alone.

    algorithm_features("def f(xs): ...", "f")  ->  ("depth_1", "hash")

Names, comments, types, formatting and dead code play no part. The source may be hostile: it is parsed, never run, and
its size is bounded.
"""

from __future__ import annotations

import ast

from raypoly.strategies.features import (
    bits,
    containers,
    index_moves,
    lookups,
    passes,
    program_shape,
    recurrence_tables,
    recursions,
    running_values,
    trees_and_lists,
)
from raypoly.strategies.features.scene import Scene, key, nodes_in, walk
from raypoly.strategies.live_code.bindings import children, parameters
from raypoly.strategies.live_code.live_program import LiveProgram, live_program

# larger programs have no features
_MAX_NODES = 3000
DEGENERATE_KINDS = frozenset({"placeholder", "hard_coded"})
_READERS = (
    program_shape,
    containers,
    lookups,
    index_moves,
    recursions,
    recurrence_tables,
    running_values,
    trees_and_lists,
    passes,
    bits,
)
# what a whole program reads its input by
_INPUT = frozenset({"input", "stdin", "open"})
_VIEWS = frozenset({"str", "tuple", "len", "list", "repr", "sorted"})


def algorithm_features(source: str, entry_point: str) -> tuple[str, ...]:
    """Features, sorted; `("placeholder",)` or `("hard_coded",)` alone for what is no attempt.

    Empty where the program is too large or too deep to be read. Raises `SyntaxError`.
    """
    try:
        return features_of(live_program(source, entry_point))
    except RecursionError:
        return ()


def features_of(live: LiveProgram) -> tuple[str, ...]:
    """The same of a program whose live part is known."""
    scene = Scene(live.tree)
    if len(scene.nodes) > _MAX_NODES:
        return ()
    if kind := _degenerate_kind(scene.nodes, live.entry):
        return (kind,)
    try:
        return tuple(sorted({name for reader in _READERS for name in reader.features(scene)}))
    except RecursionError:
        return ()


def _degenerate_kind(every: list[ast.AST], entry_point: str) -> str:
    # `placeholder` or `hard_coded` for the nodes of a live program, else empty. A placeholder's result depends on no
    # parameter. Hard-coded is an answer written out, chosen by comparing parameters with values written out. Without an
    # entry point every function counts; one attempt is enough.
    entry = entry_point.split(".")[-1]
    functions = [n for n in every if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = [function for function in functions if function.name == entry] if entry else functions
    if not entry and any(key(n) in _INPUT or getattr(n, "attr", "") in _INPUT for n in every):
        return ""
    kinds = [_kind(function) for function in found] or ["placeholder"]
    return "" if "" in kinds else kinds[0]


def _kind(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    mine = parameters(function.args) - {"self", "cls"}
    inner = nodes_in(function.body)
    fields = any(isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self" for n in inner)
    reads = [n for n in inner if isinstance(n, ast.Name) and n.id in mine]
    if not reads and not fields:
        return "placeholder"
    values = [n.value for n in inner if isinstance(n, ast.Return)]
    if len(function.body) == 1 and values and _asks_length_only(values[0], mine):
        return "placeholder"
    if not values and not fields and _unchanged(inner):
        return "placeholder"
    given_back = [_written_out(value, mine) or (isinstance(value, ast.Name) and value.id in mine) for value in values]
    branches = any(isinstance(n, ast.If) for n in inner)
    if values and not fields and not branches and all(given_back) and _unchanged(inner):
        return "placeholder"
    parent = {id(c): n for n in nodes_in(function.body) for c in children(n)}
    loops = any(isinstance(n, (ast.For, ast.While)) for n in inner)
    if values and not loops and all(_written_out(value, mine) for value in values):
        return "hard_coded" if all(_only_compared(node, parent) for node in reads) else ""
    return ""


def _asks_length_only(value: ast.expr | None, mine: set[str]) -> bool:
    # `return len(s) > 0`, `return len(s) % 2 == 0`
    if not isinstance(value, ast.Compare) or not all(_literal(part) for part in value.comparators):
        return False
    left = value.left.left if isinstance(value.left, ast.BinOp) and _literal(value.left.right) else value.left
    return isinstance(left, ast.Call) and key(left.func) == "len" and len(left.args) == 1 and key(left.args[0]) in mine


def _unchanged(inner: list[ast.AST]) -> bool:
    # whether nothing that a caller could see is changed, computed or kept
    acts = (ast.Assign, ast.AugAssign, ast.For, ast.While, ast.Call, ast.Yield, ast.Raise)
    return not any(isinstance(n, acts) for n in inner)


def _written_out(value: ast.expr | None, mine: set[str]) -> bool:
    # A literal, or a literal table asked for a parameter
    if value is None:
        return True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
        return _literal(value.func.value) or isinstance(value.func.value, ast.Name)
    if isinstance(value, ast.Subscript):
        return _literal(value.value)
    if isinstance(value, ast.Compare) and isinstance(value.ops[0], (ast.Eq, ast.In)):
        held = bool({n.id for n in walk(value.left) if isinstance(n, ast.Name)} & mine)
        return held and all(_literal(part) for part in value.comparators)
    return _literal(value)


def _literal(node: ast.AST) -> bool:
    kinds = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.USub, ast.Load, ast.Not)
    return all(isinstance(part, kinds) for part in walk(node))


def _only_compared(node: ast.AST, parent: dict[int, ast.AST]) -> bool:
    # whether a parameter, or its text, tuple or length, is only held against values written out
    up = parent.get(id(node))
    while isinstance(up, ast.Tuple) or (isinstance(up, ast.Call) and key(up.func) in _VIEWS):
        node, up = up, parent.get(id(up))
    if isinstance(up, ast.Compare):
        others = [part for part in (up.left, *up.comparators) if part is not node]
        equal = all(isinstance(op, (ast.Eq, ast.In, ast.Is)) for op in up.ops)
        return equal and all(_literal(part) or isinstance(part, (ast.Name, ast.Tuple, ast.Call)) for part in others)
    if isinstance(up, ast.Call) and isinstance(up.func, ast.Attribute) and up.func.attr == "get":
        return node in up.args
    if isinstance(up, ast.Subscript):
        return up.slice is node and _literal(up.value)
    return False
