"""One text for all programs that differ in words only: what a judge is shown, and by what answers are remembered.

    canonical("class Solution:\\n def twice(self, n: int): return n * 2  # easy", "Solution().twice").text
    ->  "def a(b): return b * 2"

Comments, docstrings, annotations, imports, the spelling of library names and literals, the class around the entry,
and code without effect are gone; own names are letters. Run, it gives what the program gives. Few tokens are part of
the purpose: one blank a level, and a block of one short statement on its head's line. `source` may be hostile: it is
parsed, never run.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from raypoly.strategies.live_code.bindings import nodes
from raypoly.strategies.live_code.decoys import remove_decoys
from raypoly.strategies.live_code.folding import fold, fold_settled_flags
from raypoly.strategies.live_code.function_facts import FunctionFacts, Sharing
from raypoly.strategies.live_code.renaming import rename
from raypoly.strategies.live_code.slicing import slice_to
from raypoly.strategies.live_code.unwrapping import (
    LIBRARY_MARK,
    drop_trial_calls,
    drop_unreached,
    plain_library_names,
    unwrap_class,
)

_JOINED = ("if ", "for ", "while ", "def ", "with ", "elif ", "else:", "async ")
"""Lines that a block of one short statement may follow."""
_COMPOUND = (*_JOINED, "class ", "try:", "match ", "case ", "@")
_LONGEST_LINE = 120
_MOST_NODES = 6000
"""Decoys are looked for in programs of a usual size: the search takes time by size and number of names."""


@dataclass(frozen=True)
class Canonical:
    """The canonical form of a program."""

    text: str
    entry: str
    """What the entry is called there: `a`, or `a().b` where it is a method still; empty where there is none."""


def canonical(source: str, entry: str = "") -> Canonical:
    """The canonical form; `entry` is `f` or `Solution().method`, empty for a whole program. Raises `SyntaxError`."""
    tree = fold(plain_library_names(ast.parse(source)))
    if entry:
        tree = drop_trial_calls(tree)
    tree = _live(fold(fold_settled_flags(tree)), entry)
    if entry:
        tree = unwrap_class(drop_unreached(tree, entry), entry)
    place = _place(tree, entry)
    tree = ast.fix_missing_locations(rename(tree, short=True))
    for node in nodes(tree):
        if isinstance(node, ast.Name):
            node.id = node.id.removeprefix(LIBRARY_MARK)
    found: list[ast.stmt] = []
    for at in place:
        body = found[-1].body if found and isinstance(found[-1], ast.ClassDef) else tree.body
        found.append(body[at])
    return Canonical(_narrow(ast.unparse(tree)), "().".join(getattr(node, "name", "") for node in found))


def _live(tree: ast.Module, entry: str) -> ast.Module:
    """What the result depends on. Only where decoys went is the program read again."""
    program = _read(tree, entry)
    if len(nodes(tree)) > _MOST_NODES:
        return slice_to(tree, entry, program)
    if remove_decoys(tree, program):
        program = _read(tree, entry)
    tree = slice_to(tree, entry, program)
    if remove_decoys(tree, program):
        tree = slice_to(tree, entry, _read(tree, entry))
    return tree


def _read(tree: ast.Module, entry: str) -> FunctionFacts:
    return FunctionFacts.read(tree, Sharing(tree), prints=not entry)


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


def _narrow(text: str) -> str:
    """The text with one blank a level, no blank lines, and blocks of one statement on the line of their head."""
    if '"""' in text or "'''" in text:
        return text  # a string goes over lines, whose blanks are its own
    lines = [(len(line) - len(line.lstrip(" ")), line.lstrip(" ")) for line in text.split("\n") if line.strip()]
    found: list[str] = []
    at = 0
    while at < len(lines):
        depth, line = lines[at]
        at += 1
        if line.startswith(_JOINED) and line.endswith(":") and at < len(lines):
            inner, body = lines[at]
            alone = at + 1 == len(lines) or lines[at + 1][0] < inner
            if alone and not body.startswith(_COMPOUND) and len(line) + len(body) < _LONGEST_LINE:
                line, at = f"{line} {body}", at + 1
        found.append(" " * (depth // 4) + line)
    return "\n".join(found)
