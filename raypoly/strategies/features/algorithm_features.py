"""The algorithmic features of a program: what it does with its data, told from live code alone.

    algorithm_features("def f(xs): ...", "f")  ->  ("depth_1", "hash")

Names, comments, types and formatting play no part: features are read from canonical source. Dead code plays none: what
the result does not depend on is sliced away first, with library calls spelled as what they change
(`library_effects.py`) and flags that never change folded. The source may be hostile: it is parsed, never run, and its
size is bounded.
"""

from __future__ import annotations

import ast

from raypoly.strategies.features import (
    bits,
    containers,
    index_moves,
    layout,
    lookups,
    passes,
    program_shape,
    recurrence_tables,
    recursions,
    running_values,
    trees_and_lists,
)
from raypoly.strategies.features.placeholders import degenerate_kind, returns_something
from raypoly.strategies.features.scene import Scene
from raypoly.strategies.live_code.bindings import reach
from raypoly.strategies.live_code.constructs import called
from raypoly.strategies.live_code.folding import fold, fold_settled_flags
from raypoly.strategies.live_code.library_effects import neutralize_library_calls, restore_library_calls
from raypoly.strategies.live_code.renaming import rename
from raypoly.strategies.live_code.slicing import slice_to

MAX_NODES = 3000
"""Larger programs have no features."""
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
    layout,
    bits,
)


def algorithm_features(source: str, entry_point: str) -> tuple[str, ...]:
    """Features, sorted; `("placeholder",)` or `("hard_coded",)` alone for what is no attempt.

    Empty where the program is too large, or nested too deeply, to be read. Raises `SyntaxError` where it does not
    parse.
    """
    tree = fold(ast.parse(source))
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        return ()
    if kind := degenerate_kind(tree, entry_point):
        return (kind,)
    try:
        live = live_part(tree, entry_point)
        if returns_something(live, entry_point) and (kind := degenerate_kind(live, entry_point)):
            return (kind,)  # what stood beside the constant was dead
        scene = Scene(ast.parse(ast.unparse(ast.fix_missing_locations(rename(live)))))
        return tuple(sorted({name for reader in _READERS for name in reader.features(scene)}))
    except RecursionError:
        return ()


def live_part(tree: ast.Module, entry_point: str) -> ast.Module:
    """What the answer depends on. The tree is spent."""
    printing = _Printing(not entry_point)
    tree = neutralize_library_calls(fold(fold_settled_flags(printing.visit(tree))))
    tree = _without_strangers(slice_to(tree, entry_point), entry_point)
    return restore_library_calls(tree)


class _Printing(ast.NodeTransformer):
    """Where a program's output is its answer, printing must count as an effect; elsewhere it is none."""

    def __init__(self, counts: bool) -> None:
        self.counts = counts

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if self.counts and isinstance(node.value, ast.Call) and called(node.value) in ("print", "write"):
            node.value.func = ast.Attribute(ast.Call(ast.Name("open", ast.Load()), [], []), "write", ast.Load())
        elif self.counts and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            self.generic_visit(node)
        return node


def _without_strangers(tree: ast.Module, entry_point: str) -> ast.Module:
    """The module without methods that the entry method never comes to."""
    if "." not in entry_point:
        return tree
    for owner in tree.body:
        if not isinstance(owner, ast.ClassDef):
            continue
        methods = {m.name: m for m in owner.body if isinstance(m, (ast.FunctionDef, ast.AsyncFunctionDef))}
        entry = entry_point.split(".")[-1]
        if entry not in methods:
            continue
        uses = {name: _named_in(method) & set(methods) for name, method in methods.items()}
        seen = reach({entry} | {name for name in methods if name.startswith("__")}, uses)
        owner.body = [
            part for part in owner.body if getattr(part, "name", None) in seen or part not in methods.values()
        ]
    return tree


def _named_in(method: ast.AST) -> set[str]:
    nodes = list(ast.walk(method))
    return {n.attr for n in nodes if isinstance(n, ast.Attribute)} | {n.id for n in nodes if isinstance(n, ast.Name)}
