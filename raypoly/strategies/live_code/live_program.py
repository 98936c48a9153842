"""The live part of a program, found once: what its canonical text, its constructs and its features are read from.

    live = live_program("class Solution:\\n def twice(self, n: int): return n * 2  # easy", "Solution().twice")
    live.entry              ->  "a"
    ast.unparse(live.tree)  ->  "def a(b):\\n    return b * 2"

`source` may be hostile: it is parsed, never run. Places (lines and columns) are those of the source.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from raypoly.strategies.live_code.bindings import nodes
from raypoly.strategies.live_code.decoys import remove_decoys
from raypoly.strategies.live_code.folding import fold
from raypoly.strategies.live_code.function_facts import FunctionFacts
from raypoly.strategies.live_code.renaming import rename, tell_apart
from raypoly.strategies.live_code.settling import settle
from raypoly.strategies.live_code.slicing import slice_to
from raypoly.strategies.live_code.unwrapping import (
    LIBRARY_MARK,
    drop_trial_calls,
    drop_unreached,
    plain_library_names,
    unwrap_class,
)

_MOST_NODES = 6000
"""Decoys are looked for in programs of a usual size: the search takes time by size and number of names."""
_ROUNDS = 3
"""Where a decoy went, what fed it may be one now; chains are short."""


@dataclass(frozen=True)
class LiveProgram:
    """What the result depends on, in one spelling. The tree is shared by all who read it, and changed by none."""

    tree: ast.Module
    entry: str
    """What the entry is called there: `a`, or `a().b` where it is a method still; empty where there is none."""


@lru_cache(maxsize=1)
def live_program(source: str, entry_point: str = "") -> LiveProgram:
    """`entry_point` is `f` or `Solution().method`, empty for a whole program, whose answer is what it prints.

    Raises `SyntaxError`; `RecursionError` where the source is nested too deeply to be read.
    """
    tree = fold(plain_library_names(ast.parse(source)))
    if entry_point:
        tree = drop_trial_calls(tree)
    tell_apart(tree)
    tree = _live(tree, entry_point)
    if entry_point:
        tree = unwrap_class(drop_unreached(tree, entry_point), entry_point)
    place = _place(tree, entry_point)
    tree = rename(tree)
    for node in nodes(tree):
        if isinstance(node, ast.Name):
            node.id = node.id.removeprefix(LIBRARY_MARK)
    found: list[ast.stmt] = []
    for at in place:
        body = found[-1].body if found and isinstance(found[-1], ast.ClassDef) else tree.body
        found.append(body[at])
    return LiveProgram(tree, "().".join(getattr(node, "name", "") for node in found))


def _live(tree: ast.Module, entry: str) -> ast.Module:
    small = len(nodes(tree)) <= _MOST_NODES
    if small and settle(tree, entry.split(".")[-1]):
        tree = fold(tree)
    for _ in range(_ROUNDS):
        program = FunctionFacts.read(tree, prints=not entry)
        tree = slice_to(tree, entry, program)
        if not small or not remove_decoys(tree, program, entry.split(".")[-1]):
            break
    return tree


def _place(tree: ast.Module, entry: str) -> tuple[int, ...]:
    """Where the entry stands: its place at the top, and in its class."""
    owner, _, method = entry.partition(".")
    owner = owner.split("(")[0]
    top = [getattr(node, "name", "") for node in tree.body]
    wanted = method if method and owner not in top else owner
    if not entry or wanted not in top:
        return ()
    at = top.index(wanted)
    node = tree.body[at]
    if not isinstance(node, ast.ClassDef) or not method:
        return (at,)
    return next(((at, i) for i, part in enumerate(node.body) if getattr(part, "name", "") == method), ())
