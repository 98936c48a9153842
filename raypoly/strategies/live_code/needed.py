"""Keep what a program's answer needs, by names and not by order.

    needed_part(tree, "f")      # def f(a):          ->  def f(a):
                                #  seen = set(a)          return a
                                #  return a

A statement makes the names that it binds, and those whose objects it changes. It stays if it gives the answer or makes
a needed name; then what it reads is needed, and so are the tests around it. So a set that is filled and never asked
goes. What is overwritten unread stays: runs find that out (`traced_runs`). In doubt a statement stays.

Scopes must have names of their own (`tell_apart`), and library names one spelling (`plain_library_names`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from raypoly.strategies.live_code.bindings import bound_here, declared, loads, nodes, parameters, reach, stores
from raypoly.strategies.live_code.library_effects import changed_by
from raypoly.strategies.live_code.sharing import CAPTURES, FUNCTIONS, Function, Sharing

_ANSWERS = (ast.Return, ast.Raise)
_YIELDS = (ast.Yield, ast.YieldFrom, ast.Await)
_JUMPS = (ast.Break, ast.Continue)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
# as a name: what is printed; after a name: a change of its object
_OUTPUT, _CHANGED = "print()", "!"


def needed_part(tree: ast.Module, entry_point: str) -> ast.Module:
    """A new module with the needed statements; expressions are shared with `tree`.

    `entry_point` is `f` or `Solution().method`; empty for a whole program, whose answer is what it prints. The whole
    module where the entry is not there.
    """
    owner, _, method = entry_point.partition(".")
    owner = owner.split("(")[0]
    facts = _Facts(tree, prints=not entry_point)
    named = {node.name: node for node in nodes(tree) if isinstance(node, (*FUNCTIONS, ast.ClassDef))}
    entry = named.get(method) or named.get(owner)
    if entry_point and entry is None:
        return tree
    facts.walk(tree.body, _Place(""))
    facts.settle()
    start = {_OUTPUT} if any(_OUTPUT in record.changes for record in facts.records.values()) else bound_here(tree.body)
    if isinstance(entry, ast.ClassDef):
        start = {entry.name, *bound_here(entry.body)}
    elif entry is not None:
        # callers see what becomes of a parameter's object, and not what else its name stands for later
        start = {entry.name, *(name + _CHANGED for name in parameters(entry.args))}
        if not facts.answers(entry):
            start |= facts.made_in(entry)  # it forgot to answer: what it computed is its attempt
    return ast.Module(facts.kept(tree.body, facts.needed(start)), [])


@dataclass(frozen=True)
class _Place:
    """Where a statement stands."""

    function: str
    guards: tuple[set[str], ...] = ()
    """What the tests around it read, the innermost last."""
    loop: int = 0
    """How many of them stand around its loop, that included."""
    tried: bool = False


@dataclass
class _Record:
    place: _Place
    reads: set[str]
    binds: set[str]
    changes: set[str]
    answers: bool
    lambdas: set[str]
    """Those that it binds."""

    @property
    def makes(self) -> set[str]:
        return self.binds | self.changes | {name + _CHANGED for name in self.changes}

    @property
    def needs(self) -> set[str]:
        return self.reads.union(*self.place.guards)


@dataclass
class _Facts:
    tree: ast.Module
    prints: bool
    records: dict[int, _Record] = field(default_factory=dict)
    """By the identity of a statement, or of a loop, a function or the like, for its head."""
    effects: dict[str, set[str]] = field(default_factory=dict)
    """By function: names of others that it makes."""

    def __post_init__(self) -> None:
        self.sharing = Sharing(self.tree)
        self.functions, self.own, self.named = self.sharing.functions, self.sharing.own, self.sharing.named
        self.lambdas: set[str] = set()

    def walk(self, body: Iterable[ast.stmt], place: _Place) -> None:
        for stmt in body:
            self._statement(stmt, place)

    def _statement(self, stmt: ast.stmt, place: _Place) -> None:
        if isinstance(stmt, FUNCTIONS):
            defaults = [*stmt.args.defaults, *filter(None, stmt.args.kw_defaults), *stmt.decorator_list]
            self._note(stmt, place, defaults, binds={stmt.name})
            self.walk(stmt.body, _Place(stmt.name))
        elif isinstance(stmt, ast.ClassDef):
            self._note(stmt, place, [*stmt.bases, *stmt.decorator_list], binds={stmt.name})
            # a base class or a decorator may call any method, and Python some
            every = stmt.bases or stmt.decorator_list
            methods = bound_here(stmt.body)
            self.records[id(stmt)].reads |= {name for name in methods if every or name.startswith("__")}
            self.walk(stmt.body, place)
        elif isinstance(stmt, _LOOPS):
            head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
            targets = [] if isinstance(stmt, ast.While) else [stmt.target]
            self._note(stmt, place, [head], targets)
            guards = (*place.guards, self.reads([head]))
            self.walk(stmt.body, replace(place, guards=guards, loop=len(guards)))
            self.walk(stmt.orelse, replace(place, guards=guards))
        elif isinstance(stmt, (ast.If, ast.With, ast.AsyncWith, ast.Match)):
            heads, targets = _heads(stmt)
            self._note(stmt, place, heads, targets)
            inner = replace(place, guards=(*place.guards, self.reads(heads)))
            for block in _blocks(stmt):
                self.walk(block, inner)
        elif isinstance(stmt, (ast.Try, ast.TryStar)):
            for block in _blocks(stmt):
                self.walk(block, replace(place, tried=True))
        elif isinstance(stmt, _JUMPS):
            # which rounds a loop makes depends on the tests around its jumps
            loop = place.guards[place.loop - 1] if place.loop else set()
            loop.update(*place.guards[place.loop :])
        else:
            targets = getattr(stmt, "targets", None) or [part for part in [getattr(stmt, "target", None)] if part]
            self._note(stmt, place, [stmt], targets)

    def _note(
        self,
        stmt: ast.stmt,
        place: _Place,
        parts: Sequence[ast.AST],
        targets: Sequence[ast.expr] = (),
        binds: Iterable[str] = (),
    ) -> None:
        inside = [node for part in (*parts, *targets) for node in nodes(part)]
        bound = {*binds, *stores(targets), *(n.target.id for n in inside if isinstance(n, ast.NamedExpr))}
        bound |= {n.name for n in inside if isinstance(n, CAPTURES) and n.name}
        changed: set[str] = set()
        for node in inside:
            if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
                changed |= self.sharing.place(node.value)
                if isinstance(node, ast.Attribute):
                    bound.add(node.attr)
                    # what a class's objects have can be seen from outside
                    changed |= {self.sharing.selves.get(getattr(node.value, "id", ""), node.attr)}
            elif isinstance(node, ast.Call):
                changed |= self._changed_by(node)
        if isinstance(stmt, ast.AugAssign) and not isinstance(stmt.value, ast.Constant):
            changed |= self.sharing.place(stmt.target)
        answers = isinstance(stmt, _ANSWERS) or place.tried or any(isinstance(n, _YIELDS) for n in inside)
        reads = self.reads(parts) | self.reads(targets) | (bound if isinstance(stmt, ast.AugAssign) else set())
        lambdas = bound if isinstance(getattr(stmt, "value", None), ast.Lambda) else set[str]()
        self.lambdas |= lambdas
        self.records[id(stmt)] = _Record(place, reads, bound, self.sharing.changed_with(changed), answers, lambdas)

    def reads(self, parts: Iterable[ast.AST]) -> set[str]:
        """Names, methods and fields that code reads."""
        found: set[str] = set()
        for part in parts:
            found |= loads(part)
            found |= {node.attr for node in nodes(part) if isinstance(node, ast.Attribute)}
        return found

    def settle(self) -> None:
        """Let each function make what the functions that it mentions make."""
        local = {name: set().union(*map(_locals, found)) for name, found in self.functions.items()}
        grows = True
        while grows:
            grows = False
            for record in self.records.values():
                for name in record.reads & self.effects.keys():
                    record.changes |= self.effects[name]
                # a function makes what its statements make beyond its own names; a lambda what its body does
                made = (record.binds | record.changes) - local.get(record.place.function, set())
                for name, more in ((record.place.function, made), *((one, record.changes) for one in record.lambdas)):
                    known = self.effects.setdefault(name, set()) if name else more
                    grows = grows or not more <= known
                    known |= more

    def answers(self, entry: Function) -> bool:
        """Whether a function gives or changes anything."""
        gives = (ast.Yield, ast.YieldFrom)
        given = any(isinstance(n, gives) or (isinstance(n, ast.Return) and n.value) for n in nodes(entry))
        return given or any(r.place.function == entry.name and r.changes - r.binds for r in self.records.values())

    def made_in(self, entry: Function) -> set[str]:
        return set().union(*(one.binds for one in self.records.values() if one.place.function == entry.name))

    def needed(self, start: set[str]) -> set[str]:
        needs: dict[str, set[str]] = {}
        for record in self.records.values():
            for name in record.makes | ({record.place.function} if record.answers else set()):
                needs.setdefault(name, set()).update(record.needs)
        return reach(start, needs)

    def kept(self, body: Iterable[ast.stmt], needed: set[str], jumps: bool = False) -> list[ast.stmt]:
        """`jumps`: of a loop that stays."""
        return [new for stmt in body for new in self._kept(stmt, needed, jumps)]

    def _kept(self, stmt: ast.stmt, needed: set[str], jumps: bool) -> list[ast.stmt]:
        if isinstance(stmt, (ast.Global, ast.Nonlocal)):
            return [stmt]
        if isinstance(stmt, _JUMPS):
            return [stmt] if jumps else []
        if isinstance(stmt, (ast.Import, ast.ImportFrom, ast.Pass)):
            return []
        record = self.records.get(id(stmt))  # a `try` has none
        makes = record is not None and not needed.isdisjoint(record.makes)
        answers = record is not None and record.answers and record.place.function in needed | {""}
        loop = isinstance(stmt, _LOOPS)
        # of a loop the jumps count only if something else in it does, or decides whether its `else` runs
        blocks = [self.kept(block, needed, jumps and not (loop and at == 0)) for at, block in enumerate(_blocks(stmt))]
        if not blocks:
            return [stmt] if makes or answers else []
        if not makes and (isinstance(stmt, FUNCTIONS) or not any(blocks)):
            return []
        if loop:
            blocks = [self.kept(_blocks(stmt)[0], needed, True), *blocks[1:]]
        return [_with_blocks(stmt, blocks)]

    def _changed_by(self, call: ast.Call) -> set[str]:
        name = getattr(call.func, "id", "")
        if name in ("print", "exit") and name not in self.own:
            return {_OUTPUT}
        if name in self.lambdas or name in self.functions or getattr(call.func, "attr", "") in self.functions:
            return set()  # `settle`
        changed = changed_by(call, self.own, self.named)
        if changed is None:
            changed = [*call.args, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
        roots = set().union(*map(self.sharing.place, changed), set())
        return roots | ({_OUTPUT} if self.prints and roots - self.own else set())


def _locals(function: Function) -> set[str]:
    return (bound_here(function.body) - declared(function.body)) | parameters(function.args)


def _heads(stmt: ast.If | ast.With | ast.AsyncWith | ast.Match) -> tuple[list[ast.AST], list[ast.expr]]:
    if isinstance(stmt, ast.If):
        return [stmt.test], []
    if isinstance(stmt, ast.Match):
        parts = [part for case in stmt.cases for part in (case.pattern, case.guard) if part is not None]
        return [stmt.subject, *parts], []
    return [item.context_expr for item in stmt.items], [item.optional_vars for item in stmt.items if item.optional_vars]


def _blocks(stmt: ast.stmt) -> list[list[ast.stmt]]:
    """Its blocks of statements, in the order of `_with_blocks`."""
    if isinstance(stmt, ast.Match):
        return [case.body for case in stmt.cases]
    named = [getattr(stmt, name) for name in ("body", "orelse", "finalbody") if hasattr(stmt, name)]
    return [*named, *(handler.body for handler in getattr(stmt, "handlers", []))]


def _with_blocks(stmt: ast.stmt, blocks: Sequence[list[ast.stmt]]) -> ast.stmt:
    new, left = copy.copy(stmt), list(blocks)
    if isinstance(new, ast.Match):
        new.cases = [copy.copy(case) for case in new.cases]
        owners: list[ast.AST] = [*new.cases]
    else:
        for name in ("body", "orelse", "finalbody"):
            if hasattr(new, name):
                setattr(new, name, left.pop(0))
        new.body = new.body or [ast.Pass()]  # type: ignore[attr-defined]
        owners = []
        if isinstance(new, (ast.Try, ast.TryStar)):
            new.handlers = [copy.copy(handler) for handler in new.handlers]
            owners = [*new.handlers]
    for owner, body in zip(owners, left, strict=True):
        owner.body = body or [ast.Pass()]  # type: ignore[attr-defined]
    return new
