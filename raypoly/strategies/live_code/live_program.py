"""The live part of a program, found once, and its canonical text: one for all programs that differ in words only.

    live = live_program("class Solution:\\n def twice(self, n: int): return n * 2  # easy", "Solution().twice")
    live.entry              ->  "a"
    canonical_text(live)    ->  "def a(b): return b * 2"

Comments, docstrings, annotations, imports, spellings, the class around the entry and code without effect are gone; own
names are letters. Judges are shown the text, and answers are remembered by it; few tokens are part of the purpose: one
blank a level, and a block of one short statement on its head's line. `source` may be hostile: it is parsed, never run.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache

from raypoly.strategies.live_code.bindings import nodes
from raypoly.strategies.live_code.folding import fold
from raypoly.strategies.live_code.needed import needed_part
from raypoly.strategies.live_code.renaming import rename, tell_apart
from raypoly.strategies.live_code.unwrapping import (
    LIBRARY_MARK,
    plain_library_names,
    unwrap_class,
)


@dataclass(frozen=True)
class LiveProgram:
    """What the result depends on. The tree is shared by all who read it, and changed by none."""

    tree: ast.Module
    entry: str
    """`a`, or `a().b` where it is a method still; empty where there is none."""


@lru_cache(maxsize=1)
def live_program(source: str, entry_point: str = "") -> LiveProgram:
    """`entry_point`: `f` or `Solution().method`; empty for a whole program, whose answer is what it prints.

    Raises `SyntaxError`; `RecursionError` where the source is nested too deeply to be read.
    """
    tree = fold(plain_library_names(ast.parse(source)))
    tell_apart(tree)
    tree = needed_part(tree, entry_point)
    if entry_point:
        tree = unwrap_class(tree, entry_point)
    # by place and not by name: renaming gives the entry another one
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


def _place(tree: ast.Module, entry: str) -> tuple[int, ...]:
    # where the entry stands: its place at the top, and in its class
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


_STRING = re.compile(r'''"""(?s:.*?)"""|(["'])(?:\\.|(?!\1)[^\\\n])*\1''')
_LONG_STRING, _SEVERAL_WORDS = 34, 14  # characters with quotes; an alphabet stays
# lines that a block of one short statement may follow
_JOINED = ("if ", "for ", "while ", "def ", "with ", "elif ", "else:", "async ")
_COMPOUND = (*_JOINED, "class ", "try:", "match ", "case ", "@")
_LONGEST_LINE = 120


def canonical_text(live: LiveProgram) -> str:
    return _narrow(ast.unparse(live.tree))


def without_prose(text: str) -> str:
    """Canonical text whose long strings are dots, so that a program can't speak to who reads it."""
    return _STRING.sub(lambda found: '"..."' if _is_prose(found[0]) else found[0], text)


def _is_prose(literal: str) -> bool:
    return len(literal) > _LONG_STRING or (len(literal) > _SEVERAL_WORDS and " " in literal)


def _narrow(text: str) -> str:
    # the text with one blank a level, no blank lines, and blocks of one statement on the line of their head
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
