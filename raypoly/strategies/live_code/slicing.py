"""Slice a program to what its entry function's result depends on.

    slice_to(fold(ast.parse(source)), "f")

Strong liveness, backwards over structured code: an assignment counts where its target is read later by something that
counts itself; a loop counts where something in it does, and only then do its condition and its jumps. So a loop that
feeds nothing but itself goes. Whether a loop ends is not a result. In doubt (aliases, unknown calls on live objects) a
statement stays.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raypoly.strategies.live_code.bindings import (
    PURE_NAMES,
    Aliases,
    bound_here,
    declared,
    loads,
    nodes,
    parameters,
    root,
    stores,
)
from raypoly.strategies.live_code.function_facts import Function, FunctionFacts, is_numeric, reads_only

_JUMPS = (ast.Break, ast.Continue)


def slice_to(tree: ast.Module, entry_point: str | None, known: FunctionFacts | None = None) -> ast.Module:
    """A new module with the live statements only; expressions are shared with `tree`, so positions are kept.

    `entry_point` is `f` or `Solution().method`; None keeps whatever any function or class at the top depends on.
    `known` is the program read carefully: then every flow of an object counts as a possible alias, and what may raise
    inside `try` stays. What is left gives the same results, at the price of some dead code.
    """
    program = known or FunctionFacts.read(tree)
    wanted = {entry_point.split("(")[0].split(".")[0]} if entry_point else set(program.free)
    if not wanted & set(program.free):
        wanted = bound_here(tree.body)
    entry = entry_point.split(".")[-1] if entry_point else ""
    aliases = program.sharing or Aliases(tree.body)
    slicer = _Slicer(program, entry, frozenset(), frozenset(), aliases)
    _, body = slicer.block(tree.body, program.expand(wanted), None)
    return ast.Module(body, [])


@dataclass(frozen=True)
class _Loop:
    """Where jumps of the loop being read go, and whether they count yet."""

    on_break: frozenset[str]
    on_continue: frozenset[str]
    jumps: bool


_Sliced = tuple[frozenset[str], list[ast.stmt]]
"""The names live before some statements, and those statements that stay."""


@dataclass(frozen=True)
class _Slicer:
    """Reads one scope. Each method takes the names live after a piece of code and gives those live before it."""

    program: FunctionFacts
    entry: str
    outer: frozenset[str]
    """Names whose objects others can see: parameters, free names, `self`."""
    at_exit: frozenset[str]
    """Names still live when the scope ends: global and nonlocal ones."""
    aliases: Aliases

    @property
    def careful(self) -> bool:
        return self.program.sharing is not None

    def reads(self, *parts: ast.AST) -> frozenset[str]:
        return self.program.expand(set().union(*(loads(part) for part in parts)))

    def block(self, stmts: list[ast.stmt], live: frozenset[str], loop: _Loop | None) -> _Sliced:
        kept: list[ast.stmt] = []
        for stmt in reversed(stmts):
            live, new = self.statement(stmt, live, loop)
            kept[:0] = new
        return live, kept

    def statement(self, stmt: ast.stmt, live: frozenset[str], loop: _Loop | None) -> _Sliced:
        if isinstance(stmt, (ast.Return, ast.Raise)):
            return self.reads(stmt) | self.at_exit, [stmt]
        if isinstance(stmt, _JUMPS):
            if loop is None or not loop.jumps:
                return live, []
            return (loop.on_break if isinstance(stmt, ast.Break) else loop.on_continue), [stmt]
        if isinstance(stmt, (ast.Assign, ast.AugAssign)):
            return self._assignment(stmt, live)
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(stmt, live, loop)
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return (live, [self._function(stmt, live)]) if stmt.name in live else (live, [])
        if isinstance(stmt, ast.ClassDef):
            return (live, [self._class(stmt)]) if stmt.name in live else (live, [])
        if isinstance(stmt, (ast.If, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match)):
            return self._branches(stmt, live, loop)
        if isinstance(stmt, ast.Delete):
            touched = any(self._touches(root(place.value), live) for place in _places(stmt.targets))
            return (live | self.reads(stmt), [stmt]) if touched or stores(stmt.targets) & live else (live, [])
        if isinstance(stmt, (ast.Global, ast.Nonlocal)):
            return live, [stmt]
        if isinstance(stmt, (ast.Import, ast.ImportFrom, ast.Pass, ast.Assert)):
            return live, []
        return (live | self.reads(stmt), [stmt]) if self._acts(stmt, live) else (live, [])

    def _assignment(self, stmt: ast.Assign | ast.AugAssign, live: frozenset[str]) -> _Sliced:
        targets: list[ast.expr] = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        names = stores(targets)
        if names & live:
            killed = names if isinstance(stmt, ast.Assign) and all(isinstance(t, ast.Name) for t in targets) else set()
            return (live - killed) | self.reads(stmt), [stmt]
        changes = self.careful and isinstance(stmt, ast.AugAssign) and not is_numeric(stmt)
        if changes and any(self._touches(name, live) for name in names):
            return live | names | self.reads(stmt), [stmt]
        if any(self._touches(root(t.value), live) for t in _places(targets)):
            return live | self.reads(stmt), [stmt]
        if self._acts(stmt.value, live):
            return live | self.reads(stmt.value), [ast.copy_location(ast.Expr(stmt.value), stmt)]
        return live, []

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, live: frozenset[str], loop: _Loop | None) -> _Sliced:
        after, orelse = self.block(stmt.orelse, live, loop)
        head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
        targets = set() if isinstance(stmt, ast.While) else stores([stmt.target])
        _, body = self._until_stable(stmt.body, after, live, targets, jumps=False)
        decides = bool(orelse) and _breaks(stmt.body)  # whether what follows runs
        if not body and not decides and not targets & live and not self._acts(head, live):
            return after, orelse
        start = after | self.reads(head) if isinstance(stmt, ast.While) else after
        before, body = self._until_stable(stmt.body, start, live, targets, jumps=True)
        new = copy.copy(stmt)
        new.body, new.orelse = body or [ast.copy_location(ast.Pass(), stmt)], orelse
        return before | self.reads(head), [new]

    def _until_stable(
        self, body: list[ast.stmt], start: frozenset[str], out: frozenset[str], targets: set[str], jumps: bool
    ) -> _Sliced:
        """Live names at the loop's head, once another round adds none, and the body that stays."""
        head = start
        while True:
            before, kept = self.block(body, head, _Loop(out, head, jumps))
            grown = head | (before - targets)
            if grown == head:
                return head, kept
            head = grown

    def _branches(self, stmt: ast.stmt, live: frozenset[str], loop: _Loop | None) -> _Sliced:
        """If, try, with, match: each block on its own; the guard counts where a block keeps something."""
        if self.careful and isinstance(stmt, (ast.Try, ast.TryStar)):
            return live | self.reads(stmt), [stmt]
        new = copy.copy(stmt)
        later, any_kept = live, False
        certain = isinstance(stmt, (ast.If, ast.With, ast.AsyncWith))  # one of its blocks runs, and whole
        before: frozenset[str] = frozenset() if certain else live
        owners: list[ast.AST] = [new]
        for name in ("handlers", "cases"):
            if hasattr(new, name):
                setattr(new, name, [copy.copy(part) for part in getattr(new, name)])
                owners.extend(getattr(new, name))
        if isinstance(stmt, (ast.Try, ast.TryStar)):
            later = live | self.block(stmt.finalbody, live, loop)[0]
        for owner in owners:
            for part in ("body", "orelse", "finalbody"):
                if hasattr(owner, part):
                    names, kept = self.block(getattr(owner, part), later, loop)
                    setattr(owner, part, kept)
                    before, any_kept = before | names, any_kept or bool(kept)
        guards = _guards(stmt)
        if not any_kept and not any(self._acts(guard, live) for guard in guards):
            return live, []
        for owner in owners:
            if hasattr(owner, "body") and not owner.body:
                owner.body = [ast.copy_location(ast.Pass(), stmt)]
        assert isinstance(new, ast.stmt)
        return before | self.reads(*guards), [new]

    def _function(self, stmt: Function, live: frozenset[str]) -> ast.stmt:
        own = bound_here(stmt.body) - declared(stmt.body)
        aliases = self.aliases if self.careful else Aliases(stmt.body)
        outer = frozenset((loads(stmt) - own) | parameters(stmt.args) | declared(stmt.body))
        exit_names = frozenset(declared(stmt.body))
        if stmt.name == self.entry and stmt.name not in self.program.effectful and not _answers(stmt):
            exit_names |= bound_here(stmt.body)  # it forgot to return: what it computed is its attempt
        inner = replace(self, outer=outer, at_exit=exit_names, aliases=aliases)
        new = copy.copy(stmt)
        _, body = inner.block(stmt.body, exit_names, None)
        new.body = body or [ast.copy_location(ast.Pass(), stmt)]
        return new

    def _class(self, stmt: ast.ClassDef) -> ast.stmt:
        new = copy.copy(stmt)
        every = frozenset(bound_here(stmt.body))
        new.body = self.block(stmt.body, every, None)[1] or [ast.copy_location(ast.Pass(), stmt)]
        return new

    def _touches(self, name: str | None, live: frozenset[str]) -> bool:
        if name is None or (self.program.prints and name in self.program.foreign):
            return True
        return bool(self.aliases.of(name) & (live | self.outer))

    def _acts(self, node: ast.AST, live: frozenset[str]) -> bool:
        """Whether running the code may change something live, besides the value that it gives."""
        for part in nodes(node):
            if isinstance(part, (ast.Yield, ast.YieldFrom, ast.Await)):
                return True
            if isinstance(part, ast.NamedExpr) and part.target.id in live:
                return True
            if isinstance(part, ast.Delete) and stores(part.targets) & live:
                return True
            if isinstance(part, ast.Call) and self._call_acts(part, live):
                return True
        return False

    def _call_acts(self, call: ast.Call, live: frozenset[str]) -> bool:
        arguments = [root(arg) for arg in call.args]
        touched = any(name is not None and self._touches(name, live) for name in arguments)
        if self.careful and any(name in self.program.effectful for name in arguments):
            return True
        if isinstance(call.func, ast.Name):
            if call.func.id in self.program.free:
                return call.func.id in self.program.effectful
            if call.func.id == "print" and self.program.prints:
                return True
            return call.func.id not in PURE_NAMES and touched
        if not isinstance(call.func, ast.Attribute):
            return True
        if call.func.attr in self.program.effectful:  # before all else: the program may have a `union` of its own
            return True
        if reads_only(call):
            return False
        return self._touches(root(call.func.value), live) or touched


def _breaks(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop with this body has a `break` of its own."""
    for stmt in body:
        if isinstance(stmt, ast.Break):
            return True
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        inner = isinstance(stmt, (ast.For, ast.AsyncFor, ast.While))
        parts = [stmt, *getattr(stmt, "handlers", []), *getattr(stmt, "cases", [])]
        blocks = [getattr(part, name, []) for part in parts for name in ("body", "orelse", "finalbody")]
        if any(_breaks(block) for block in (blocks[1:2] if inner else blocks)):
            return True
    return False


def _answers(function: Function) -> bool:
    """Whether a function can give anything but None."""
    kinds = (ast.Yield, ast.YieldFrom)
    return any(isinstance(n, kinds) or (isinstance(n, ast.Return) and n.value) for n in nodes(function))


def _places(targets: Sequence[ast.expr]) -> list[ast.Subscript | ast.Attribute]:
    """The subscripts and attributes that are stored to."""
    found = [node for target in targets for node in nodes(target)]
    return [n for n in found if isinstance(n, (ast.Subscript, ast.Attribute)) and not isinstance(n.ctx, ast.Load)]


def _guards(stmt: ast.stmt) -> list[ast.AST]:
    if isinstance(stmt, ast.If):
        return [stmt.test]
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return list(stmt.items)
    if isinstance(stmt, ast.Match):
        return [stmt.subject, *(part for case in stmt.cases for part in (case.pattern, case.guard) if part)]
    return [handler.type for handler in getattr(stmt, "handlers", []) if handler.type]
