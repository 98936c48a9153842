"""The code of a counted program: compiled so that its statements can be told apart, and what it names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from opcode import opmap
from types import BuiltinFunctionType, CodeType
from typing import Any

FILE = "<candidate>"
_WITH_OWN_LINE = (ast.stmt, ast.excepthandler, ast.match_case)
_DEEPER = 4
_ASSIGNMENTS = frozenset(map(opmap.__getitem__, ("STORE_DEREF", "STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR")))
_CHANGES = """
    add append appendleft clear discard extend extendleft insert pop popitem popleft remove reverse rotate send
    setdefault sort subtract update __setitem__ __iadd__ setitem delitem iadd iconcat heapify heappop heappush
    heappushpop heapreplace insort insort_left insort_right
"""
"""Names of what changes a container: a comprehension that calls one could be a loop that keeps no items."""


def compiled(source: str) -> CodeType:
    """The program with each statement on a line of its own, however it was written. Raises what `compile` raises."""
    tree = ast.parse(source, FILE)
    line = 0
    todo: list[tuple[ast.AST, int]] = [(tree, 0)]
    while todo:
        node, at = todo.pop()
        if isinstance(node, _WITH_OWN_LINE):
            line = at = line + 1
        if "lineno" in node._attributes:
            node.lineno = node.end_lineno = at  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
        todo += [(child, at) for child in ast.iter_child_nodes(node)]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPER * limit)  # a tree may be as deep as its text was
    try:
        return compile(tree, FILE, "exec", dont_inherit=True)
    except SyntaxError:
        compile(source, FILE, "exec", dont_inherit=True)  # names the line
        raise
    finally:
        sys.setrecursionlimit(limit)


def changes_containers(code: CodeType) -> bool:
    """Whether it names what changes a container."""
    return any(not set(_CHANGES.split()).isdisjoint(part.co_names) for part in _parts(code))


def reaches_modules(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Whether it imports anything, or its prelude left more than functions of the library."""
    given = (value for name, value in namespace.items() if name[:2] != "__")
    imports = any(opmap["IMPORT_NAME"] in part.co_code[::2] for part in _parts(code))
    return imports or any(type(value) is not BuiltinFunctionType for value in given)


def sets_attributes(code: CodeType) -> bool:
    """Whether it sets an attribute of anything."""
    return any(opmap["STORE_ATTR"] in part.co_code[::2] for part in _parts(code))


def _parts(code: CodeType) -> Iterator[CodeType]:
    """A program's code objects."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _parts(constant)


def assigns(code: CodeType) -> bool:
    """Whether a comprehension assigns a variable of the function around it (`:=`), an attribute or an item."""
    return not _ASSIGNMENTS.isdisjoint(code.co_code[::2])
