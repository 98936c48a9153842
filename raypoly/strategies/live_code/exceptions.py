"""How code may be left before its end: by jumps, and by what a handler catches. `try` that none leaves is no `try`.

    Raising(program, caught_kinds(handlers), live).may_leave(stmt)

Inputs are taken to be of the right types: only a handler that names `TypeError` and the like expects another.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from raypoly.strategies.live_code.bindings import nodes
from raypoly.strategies.live_code.function_facts import FunctionFacts
from raypoly.strategies.live_code.library_effects import CHANGES_FIRST, CHANGING_METHODS, READ_ONLY_METHODS, READS_ONLY

_WIDER = {
    "LookupError": frozenset({"IndexError", "KeyError"}),
    "ArithmeticError": frozenset({"ZeroDivisionError", "OverflowError"}),
}
# what wrong types, or numbers without end, lead to: asked for by name alone
_TYPES = frozenset({"TypeError", "AttributeError", "NameError", "UnboundLocalError", "OverflowError"})
_BY_CALL: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("min", "max", "chr", "index", "remove", "log", "sqrt", "comb", "isqrt"), frozenset({"ValueError"})
    ),
    **dict.fromkeys(("int", "float", "complex"), frozenset({"ValueError", "OverflowError"})),
    **dict.fromkeys(("pop", "popleft", "popitem", "heappop", "heapreplace"), frozenset({"IndexError", "KeyError"})),
    "next": frozenset({"StopIteration"}),
    "divmod": frozenset({"ZeroDivisionError"}),
    "pow": frozenset({"ZeroDivisionError", "ValueError"}),
}
_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def caught_kinds(handlers: list[ast.ExceptHandler]) -> frozenset[str] | None:
    """Names of exceptions that handlers catch; None for all but those of wrong types."""
    found: set[str] = set()
    for handler in handlers:
        parts = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for part in parts:
            name = part.id if isinstance(part, ast.Name) else ""
            if name in ("", "Exception", "BaseException"):
                return None
            found |= {name} | _WIDER.get(name, frozenset())
    return frozenset(found)


@dataclass(frozen=True)
class Raising:
    """What is asked of the code in one `try`."""

    program: FunctionFacts
    caught: frozenset[str] | None
    live: frozenset[str]
    """Names that handlers read."""

    def may_leave(self, stmt: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        """Whether something in the code may raise what is caught."""
        return any(self._raises(node, seen) for node in nodes(stmt))

    def says_by_raising(self, node: ast.AST) -> bool:
        """Whether a value that nobody reads may be asked for to see if it can be had: `int(s)`, `table[k]`."""
        return any(isinstance(n, (ast.Call, ast.Subscript)) and self._raises(n, frozenset()) for n in nodes(node))

    def _raises(self, node: ast.AST, seen: frozenset[str]) -> bool:
        if isinstance(node, ast.Call):
            return self._call_raises(node, seen)
        if isinstance(node, ast.Raise):
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            return not isinstance(made, ast.Name) or self._catches({made.id, "RuntimeError"})
        if isinstance(node, ast.Assert):
            return self._catches({"AssertionError"})
        if isinstance(node, ast.Subscript):
            return not isinstance(node.slice, ast.Slice) and self._catches({"IndexError", "KeyError", "TypeError"})
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, _DIVISIONS):
            by = node.right if isinstance(node, ast.BinOp) else node.value
            if not (isinstance(by, ast.Constant) and by.value):
                return self._catches({"ZeroDivisionError", "TypeError", "OverflowError"})
        if isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Store):
            return self._catches({"ValueError", "TypeError"})
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self._catches({"ImportError", "ModuleNotFoundError"})
        typed = (
            ast.BinOp,
            ast.UnaryOp,
            ast.Compare,
            ast.Attribute,
            ast.For,
            ast.comprehension,
            ast.AugAssign,
            ast.Name,
        )
        return isinstance(node, typed) and self.caught is not None and bool(self.caught & _TYPES)

    def _catches(self, kinds: set[str] | frozenset[str]) -> bool:
        # a bare `except` would catch wrong types too, and inputs are taken to be of the right ones
        return bool(kinds - _TYPES if self.caught is None else kinds & self.caught)

    def _call_raises(self, call: ast.Call, seen: frozenset[str]) -> bool:
        method = isinstance(call.func, ast.Attribute)
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in self.program.bodies:
            # a function of the program is looked into; where it comes back to itself, the depth is all that may raise
            within = seen | {name}
            deep = self._catches({"RecursionError", "RuntimeError"} - (set() if self.caught else {"RuntimeError"}))
            bodies = [] if name in seen else self.program.bodies[name]
            return (name in seen and deep) or any(self.may_leave(body, within) for body in bodies)
        if name in _BY_CALL and (method or name not in self.program.own):
            return self._catches(_BY_CALL[name] | {"TypeError"})
        if method:
            return name not in READ_ONLY_METHODS | CHANGING_METHODS or self._catches({"AttributeError"})
        known = name in READS_ONLY | CHANGES_FIRST and name not in self.program.own
        return not known or self._catches({"TypeError"})


def breaks(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop with this body has a `break` of its own."""
    for stmt in body:
        if isinstance(stmt, ast.Break):
            return True
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        inner = isinstance(stmt, (ast.For, ast.AsyncFor, ast.While))
        parts = [stmt, *getattr(stmt, "handlers", []), *getattr(stmt, "cases", [])]
        blocks = [getattr(part, name, []) for part in parts for name in ("body", "orelse", "finalbody")]
        if any(breaks(block) for block in (blocks[1:2] if inner else blocks)):
            return True
    return False


def jumps_out(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(n, (ast.Return, ast.Break, ast.Continue, ast.Raise)) for stmt in body for n in nodes(stmt))
