"""Slice a program to what its entry function's result depends on.

    slice_to(tree, "f", FunctionFacts.read(tree))

Strong liveness, backwards over structured code: an assignment counts where its target is read later by something that
counts itself; a loop counts where something in it does, and only then do its condition and its jumps. So a loop that
feeds nothing but itself goes. Whether a loop ends is not a result. In doubt (aliases, unknown calls on live objects,
what may raise inside `try`) a statement stays: what is left gives the same results.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from raypoly.strategies.live_code.bindings import bound_here, declared, loads, nodes, parameters, root, stores
from raypoly.strategies.live_code.exceptions import Raising, breaks, caught_kinds, jumps_out
from raypoly.strategies.live_code.function_facts import Function, FunctionFacts, is_numeric
from raypoly.strategies.live_code.library_effects import changed_by

_JUMPS = (ast.Break, ast.Continue)
# loops in loops are looked at again and again: what is nested too deeply for that stays as it is
_MOST_VISITS = 20_000


def slice_to(tree: ast.Module, entry_point: str, program: FunctionFacts) -> ast.Module:
    """A new module with the live statements only; expressions are shared with `tree`, so positions are kept.

    `entry_point` is `f` or `Solution().method`; empty keeps whatever any function or class at the top depends on.
    """
    # a bare function stands for a method whose class is not there
    names = [entry_point.split("(")[0].split(".")[0], entry_point.partition(".")[2]]
    wanted = set([name for name in names if name in program.free][:1] if entry_point else program.free)
    # the entry is not there, as where a program forgot to define it: then everything at the top counts
    wanted = wanted or bound_here(tree.body)
    slicer = _Slicer(program, entry_point.split(".")[-1], frozenset(), frozenset())
    _, body = slicer.block(tree.body, program.expand(wanted), None)
    return ast.Module(body, [])


@dataclass(frozen=True)
class _Loop:
    """Where jumps of the loop being read go, and whether they count yet."""

    on_break: frozenset[str]
    on_continue: frozenset[str]
    jumps: bool


# the names live before some statements, and those statements that stay
_Sliced = tuple[frozenset[str], list[ast.stmt]]


@dataclass(frozen=True)
class _Slicer:
    """Reads one scope. Each method takes the names live after a piece of code and gives those live before it."""

    program: FunctionFacts
    entry: str
    outer: frozenset[str]
    """Names whose objects others can see: parameters, free names, `self`."""
    at_exit: frozenset[str]
    """Names still live when the scope ends: global and nonlocal ones."""
    raising: Raising | None = None
    """What the handlers around the code catch, if it stands inside `try`."""
    visits: list[int] = field(default_factory=lambda: [_MOST_VISITS])
    """How many statements may still be looked at."""

    def reads(self, *parts: ast.AST) -> frozenset[str]:
        return frozenset().union(*map(self.program.reads, parts))

    def block(self, stmts: list[ast.stmt], live: frozenset[str], loop: _Loop | None) -> _Sliced:
        kept: list[ast.stmt] = []
        # from the last statement to the first: what is live before one follows from what is live after it
        for stmt in reversed(stmts):
            live, new = self.statement(stmt, live, loop)
            kept.extend(reversed(new))
            if self.raising is not None:
                # any statement of a `try` may be the last before a handler runs: what handlers read is live all along
                live |= self.raising.live
        kept.reverse()
        return live, kept

    def statement(self, stmt: ast.stmt, live: frozenset[str], loop: _Loop | None) -> _Sliced:
        self.visits[0] -= 1
        # the budget is spent: keeping a statement unread is always right
        if self.visits[0] < 0:
            return live | self.reads(stmt), [stmt]
        if isinstance(stmt, (ast.Assign, ast.AugAssign)):
            return self._assignment(stmt, live)
        if isinstance(stmt, ast.Expr):
            return self._expression(stmt, live)
        if isinstance(stmt, (ast.Return, ast.Raise)):
            return self.reads(stmt) | self.at_exit, [stmt]
        if isinstance(stmt, _JUMPS):
            # In the first reading of a loop its jumps are left out: it asks whether anything else in the body is live.
            # A jump of a dead loop decides nothing.
            if loop is None or not loop.jumps:
                return live, []
            return (loop.on_break if isinstance(stmt, ast.Break) else loop.on_continue), [stmt]
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(stmt, live, loop)
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return (live, [self._function(stmt)]) if stmt.name in live else (live, [])
        if isinstance(stmt, ast.ClassDef):
            return (live, [self._class(stmt)]) if stmt.name in live else (live, [])
        if isinstance(stmt, (ast.Try, ast.TryStar)):
            return self._try(stmt, live, loop)
        if isinstance(stmt, (ast.If, ast.With, ast.AsyncWith, ast.Match)):
            return self._branches(stmt, live, loop)
        if isinstance(stmt, ast.Delete):
            touched = any(self._touches(root(place.value), live) for place in _places(stmt.targets))
            return (live | self.reads(stmt), [stmt]) if touched or stores(stmt.targets) & live else (live, [])
        if isinstance(stmt, (ast.Global, ast.Nonlocal)):
            return live, [stmt]
        if isinstance(stmt, ast.Assert) and self.raising is not None:
            return live | self.reads(stmt), [stmt]
        return live, []

    def _expression(self, stmt: ast.Expr, live: frozenset[str]) -> _Sliced:
        return (live | self.reads(stmt), [stmt]) if self._stays(stmt.value, live) else (live, [])

    def _assignment(self, stmt: ast.Assign | ast.AugAssign, live: frozenset[str]) -> _Sliced:
        targets: list[ast.expr] = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        names = stores(targets)
        if not names.isdisjoint(live):
            # only a plain assignment to names alone kills them: `a[i] = x` and `a += x` read what was there
            if isinstance(stmt, ast.Assign) and all(isinstance(t, ast.Name) for t in targets):
                live = live - names
            return live | self.reads(stmt), [stmt]
        # `b += [1]` changes the object, which may be live under another name; `i += 1` can not
        changes = isinstance(stmt, ast.AugAssign) and not is_numeric(stmt)
        if changes and any(self._touches(name, live) for name in names):
            return live | names | self.reads(stmt), [stmt]
        if any(self._touches(root(t.value), live) for t in _places(targets)):
            return live | self.reads(stmt), [stmt]
        # nobody reads the target, but making the value does something: that alone stays, as an expression
        if self._stays(stmt.value, live):
            return live | self.reads(stmt.value), [ast.copy_location(ast.Expr(stmt.value), stmt)]
        return live, []

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, live: frozenset[str], loop: _Loop | None) -> _Sliced:
        after, orelse = self.block(stmt.orelse, live, loop) if stmt.orelse else (live, [])
        head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
        targets = set() if isinstance(stmt, ast.While) else stores([stmt.target])
        # Two readings: without jumps, to see whether the loop does anything; if it does, again with its head and its
        # jumps live, which may make more of the body live.
        _, body = self._until_stable(stmt.body, after, live, targets, jumps=False)
        # an empty loop with a `break` still decides whether its `else` runs
        decides = bool(orelse) and breaks(stmt.body)  # whether what follows runs
        if not body and not decides and targets.isdisjoint(live) and not self._stays(head, live):
            return after, orelse
        start = after | self.reads(head) if isinstance(stmt, ast.While) else after
        before, body = self._until_stable(stmt.body, start, live, targets, jumps=True)
        new = copy.copy(stmt)
        new.body, new.orelse = body or [ast.copy_location(ast.Pass(), stmt)], orelse
        return before | self.reads(head), [new]

    def _until_stable(
        self, body: list[ast.stmt], start: frozenset[str], out: frozenset[str], targets: set[str], jumps: bool
    ) -> _Sliced:
        # live names at the loop's head, once another round adds none, and the body that stays
        head = start
        while True:
            before, kept = self.block(body, head, _Loop(out, head, jumps))
            grown = head | (before - targets)
            if grown == head:
                return head, kept
            # the next round may read what this one leaves: go round until no name is added, which ends since names are
            # finite
            head = grown

    def _branches(self, stmt: ast.stmt, live: frozenset[str], loop: _Loop | None) -> _Sliced:
        # if, with, match: each block on its own; the guard counts where a block keeps something
        new = copy.copy(stmt)
        any_kept = False
        # of an `if` or a `with` one of the blocks runs, and whole
        before: frozenset[str] = live if isinstance(stmt, ast.Match) else frozenset()
        owners: list[ast.AST] = [new]
        if isinstance(new, ast.Match):
            new.cases = [copy.copy(case) for case in new.cases]
            owners = [*new.cases]
        for owner in owners:
            for part in ("body", "orelse"):
                if hasattr(owner, part):
                    names, kept = self.block(getattr(owner, part), live, loop)
                    setattr(owner, part, kept)
                    before, any_kept = before | names, any_kept or bool(kept)
        guards = _guards(stmt)
        if not any_kept and not any(self._stays(guard, live) for guard in guards):
            return live, []
        for owner in owners:
            if not getattr(owner, "body", True):
                owner.body = [ast.copy_location(ast.Pass(), stmt)]  # type: ignore[attr-defined]
        assert isinstance(new, ast.stmt)
        return before | self.reads(*guards), [new]

    def _try(self, stmt: ast.Try | ast.TryStar, live: frozenset[str], loop: _Loop | None) -> _Sliced:
        # what may raise something that is caught stays; a `try` that nothing can leave so is its body alone
        new = copy.copy(stmt)
        after, new.finalbody = self.block(stmt.finalbody, live, loop)
        before = after | (live if stmt.finalbody else frozenset())
        new.handlers = [copy.copy(handler) for handler in stmt.handlers]
        for handler in new.handlers:
            names, handler.body = self.block(handler.body, after, loop)
            handler.body = handler.body or [ast.copy_location(ast.Pass(), stmt)]
            before |= names | (self.reads(handler.type) if handler.type else frozenset())
        names, new.orelse = self.block(stmt.orelse, after, loop)
        raising = Raising(self.program, caught_kinds(stmt.handlers), before)
        _, body = replace(self, raising=raising).block(stmt.body, names | before, loop)
        # Nothing that stays can raise what is caught, so the handlers are dead. Sliced once more without them: fewer
        # names are live then.
        if not any(map(raising.may_leave, body)):
            names, body = self.block([*stmt.body, *stmt.orelse], after, loop)
            return names, body + new.finalbody if not stmt.finalbody or not jumps_out(body) else [new]
        start, new.body = replace(self, raising=raising).block(stmt.body, names | before, loop)
        return start | before, [new]

    def _function(self, stmt: Function) -> ast.stmt:
        # a function is sliced by its own: of its names only those that outlive it are live at its end
        here = bound_here(stmt.body)
        outside = declared(stmt.body)
        outer = frozenset((loads(stmt) - (here - outside)) | parameters(stmt.args) | outside)
        exit_names = frozenset(outside)
        if self.program.forgot_to_answer(stmt, self.entry):
            exit_names |= here  # what it computed is its attempt
        inner = replace(self, outer=outer, at_exit=exit_names, raising=None)
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
        # an object without a name may be anything; in a whole program what comes from outside (a file, `sys`) is output
        if name is None or (self.program.prints and name in self.program.foreign):
            return True
        shared = self.program.sharing.of(name)
        # the object matters if some name for it is read later, or if callers can see it
        return not (shared.isdisjoint(live) and shared.isdisjoint(self.outer))

    def _stays(self, node: ast.AST, live: frozenset[str]) -> bool:
        # whether running the code may change something live besides the value that it gives, or raise for `try`
        for part in self.program.acting(node):
            if isinstance(part, ast.Call):
                if self._call_acts(part, live):
                    return True
            elif not isinstance(part, ast.NamedExpr) or part.target.id in live:
                return True
        return self.raising is not None and self.raising.says_by_raising(node)

    def _call_acts(self, call: ast.Call, live: frozenset[str]) -> bool:
        program = self.program
        arguments = [root(arg) for arg in call.args]
        if any(name in program.effectful for name in arguments):
            return True
        if isinstance(call.func, ast.Name):
            # a function of the program: its own effects are known, and its arguments are among them
            if call.func.id in program.free:
                return call.func.id in program.effectful
            if call.func.id == "print" and program.prints:
                return True
        elif isinstance(call.func, ast.Attribute) and call.func.attr in program.effectful:
            return True
        changed = changed_by(call, program.own, program.functions)
        if changed is not None:
            return any(self._touches(root(place), live) for place in changed)
        if any(name is not None and self._touches(name, live) for name in arguments):
            return True
        return not isinstance(call.func, ast.Name) and self._touches(root(call.func), live)


def _places(targets: Sequence[ast.expr]) -> list[ast.Subscript | ast.Attribute]:
    # the subscripts and attributes that are stored to
    found = [node for target in targets for node in nodes(target)]
    return [n for n in found if isinstance(n, (ast.Subscript, ast.Attribute)) and not isinstance(n.ctx, ast.Load)]


def _guards(stmt: ast.stmt) -> list[ast.AST]:
    if isinstance(stmt, ast.If):
        return [stmt.test]
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return list(stmt.items)
    assert isinstance(stmt, ast.Match)
    return [stmt.subject, *(part for case in stmt.cases for part in (case.pattern, case.guard) if part)]
