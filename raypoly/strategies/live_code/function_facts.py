"""Facts of every function in a program, found before one is sliced."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from raypoly.strategies.live_code.bindings import (
    bound_here,
    children,
    declared,
    loads,
    nodes,
    own_nodes,
    parameters,
    reach,
    root,
    stores,
)
from raypoly.strategies.live_code.library_effects import READS_ONLY, changed_by

Function = ast.FunctionDef | ast.AsyncFunctionDef
_NUMBERS = (ast.Compare, ast.Constant, ast.JoinedStr)
_ARITHMETIC = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_COUNTS = frozenset({"len", "range", "sum", "int", "ord", "abs", "str", "bool", "isinstance", "float"})
_ACTING = (ast.Call, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


class Sharing:
    """Names of a whole program that may stand for the same object, hold it or be held by it.

            sharing = Sharing(nodes(ast.parse("rows = []\\nrow = []\\nrows.append(row)")))
            sharing.of("row")       ->  {"row", "rows"}

    One class of names a connected group of flows, without direction, scope or time: what is told apart is surely apart.
    """

    def __init__(self, every: list[ast.AST]) -> None:
        self._parent: dict[str, str] = {}
        self.bound = {n.id for n in every if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self.bound |= {n.arg for n in every if isinstance(n, ast.arg)}
        self._functions: dict[str, set[str]] = {}
        for node in every:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._functions.setdefault(node.name, set()).update(parameters(node.args))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in stores(node.targets):
                    self._functions.setdefault(name, set()).update(parameters(node.value.args))
        self._known = self.bound | self._functions.keys()
        for node in every:
            if type(node) in _FLOWS:
                self._flow(node)
        groups: dict[str, set[str]] = {}
        for name in list(self._parent):
            groups.setdefault(self._top(name), set()).add(name)
        self._groups = {name: group for group in groups.values() for name in group}

    def of(self, name: str) -> set[str]:
        """The name and every other that may share its object."""
        return self._groups.get(name) or {name}

    def _join(self, targets: set[str], sources: set[str]) -> None:
        names = targets | sources
        first = next(iter(names), "")
        for other in names:
            self._parent[self._top(other)] = self._top(first)

    def _top(self, name: str) -> str:
        parent = self._parent.setdefault(name, name)
        while parent != name:
            name, parent = parent, self._parent.setdefault(parent, parent)
        return name

    def _flow(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self._join(self._owners(targets), self._held(node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._join(stores([node.target]), self._held(node.iter))
        elif isinstance(node, ast.NamedExpr):
            self._join({node.target.id}, self._held(node.value))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._join(stores([node.optional_vars]), self._held(node.context_expr))
        elif isinstance(node, ast.Match):
            captures = (ast.MatchAs, ast.MatchStar)
            caught = {n.name for case in node.cases for n in nodes(case.pattern) if isinstance(n, captures)}
            self._join({name for name in caught if name}, self._held(node.subject))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            gives = (ast.Return, ast.Yield, ast.YieldFrom)
            given = [n.value for n in own_nodes(node.body) if isinstance(n, gives) and n.value]
            self._join({node.name}, set().union(*map(self._held, given), set()))
        elif isinstance(node, ast.Call):
            self._call(node)

    def _call(self, call: ast.Call) -> None:
        given = set().union(*(self._held(a) for a in [*call.args, *(k.value for k in call.keywords)]), set())
        if isinstance(call.func, ast.Attribute):
            name, owner = call.func.attr, self._held(call.func.value)
        else:
            name, owner = getattr(call.func, "id", ""), self._held(call.func)
            if name in READS_ONLY and name not in self._known:
                return
        self._join(owner | self._functions.get(name, set()), given)

    def _owners(self, targets: Iterable[ast.expr]) -> set[str]:
        # the names that the targets bind, or whose objects they store into
        places = (n for t in targets for n in nodes(t) if isinstance(n, (ast.Subscript, ast.Attribute)))
        return stores(targets) | {name for place in places if (name := root(place)) is not None}

    def _held(self, node: ast.AST) -> set[str]:
        # names whose object the value may be, hold, or be made of
        found: set[str] = set()
        self._hold_into(found, node)
        return found

    def _hold_into(self, found: set[str], node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            if node.id in self._known:
                found.add(node.id)
            return
        if isinstance(node, _NUMBERS) or (isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC)):
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _COUNTS:
            return
        for child in children(node):
            self._hold_into(found, child)


# nodes by which objects get under other names
_FLOWS = frozenset(
    {
        *(ast.Assign, ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension, ast.NamedExpr, ast.withitem, ast.Match),
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Call),
    }
)


@dataclass(frozen=True)
class FunctionFacts:
    """By simple name."""

    free: dict[str, set[str]]
    """Names that a function (class, named lambda) reads and doesn't bind."""
    effectful: set[str]
    """Functions that may change something beyond their own locals."""
    sharing: Sharing
    own: frozenset[str]
    """Names that the program binds anywhere: no library's."""
    functions: frozenset[str]
    """Functions, methods and classes."""
    bodies: dict[str, list[Function]]
    prints: bool = False
    """Whether what is printed, or done to anything from outside, is the answer."""
    foreign: frozenset[str] = frozenset()
    """Names read and never bound."""
    _reads: dict[int, frozenset[str]] = field(default_factory=dict)
    _acting: dict[int, list[ast.AST]] = field(default_factory=dict)

    @classmethod
    def read(cls, tree: ast.Module, prints: bool = False) -> FunctionFacts:
        """`prints`: a whole program, whose answer is its output. The tree must stay while the facts are used."""
        every = nodes(tree)
        sharing = Sharing(every)
        free: dict[str, set[str]] = {}
        calls: dict[str, set[str]] = {}
        effectful: set[str] = set()
        bodies: dict[str, list[Function]] = {}
        named = {n.name for n in every if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
        own = frozenset(sharing.bound | named)
        for node in every:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                free.setdefault(node.name, set()).update(loads(node))
                inner = nodes(node)
                called = [n.func for n in inner if isinstance(n, ast.Call)]
                names = {f.id if isinstance(f, ast.Name) else getattr(f, "attr", "") for f in called}
                calls.setdefault(node.name, set()).update(names)
                if isinstance(node, ast.ClassDef):
                    continue
                bodies.setdefault(node.name, []).append(node)
                if _changes_others(node, inner, sharing, own, named) or (prints and names & {"print", "exit"}):
                    effectful.add(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in stores(node.targets):
                    free.setdefault(name, set()).update(loads(node.value))
        while more := {name for name, called_names in calls.items() if called_names & effectful} - effectful:
            effectful |= more
        foreign = frozenset(loads(tree) - bound_here(tree.body)) if prints else frozenset()
        return cls(free, effectful, sharing, own, frozenset(named), bodies, prints, foreign)

    def forgot_to_answer(self, function: Function, entry: str) -> bool:
        """Whether it is the entry, and neither gives nor changes anything."""
        kinds = (ast.Yield, ast.YieldFrom)
        return (
            function.name == entry
            and entry not in self.effectful
            and not any(isinstance(n, kinds) or (isinstance(n, ast.Return) and n.value) for n in nodes(function))
        )

    def reads(self, node: ast.AST) -> frozenset[str]:
        """Names that the code reads, and whatever the functions among them read."""
        found = self._reads.get(id(node))
        if found is None:
            found = self._reads[id(node)] = self.expand(loads(node))
        return found

    def expand(self, names: set[str]) -> frozenset[str]:
        """The names, and whatever the functions among them read, functions of functions included."""
        return frozenset(names if names.isdisjoint(self.free) else reach(names, self.free))

    def acting(self, node: ast.AST) -> list[ast.AST]:
        """Parts that may do more than give a value."""
        found = self._acting.get(id(node))
        if found is None:
            found = self._acting[id(node)] = [part for part in nodes(node) if isinstance(part, _ACTING)]
        return found


def _changes_others(
    function: Function, inner: list[ast.AST], sharing: Sharing, everyones: Set[str], functions: Set[str]
) -> bool:
    # whether the body may change an object that it did not make: a parameter, a free name, `self`
    if declared(function.body):
        return True
    own = bound_here(function.body)
    given = parameters(function.args)
    for node in inner:
        targets: list[ast.expr] | None = []
        if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            targets = [node.value]
        elif isinstance(node, ast.Call):
            targets = changed_by(node, everyones, functions)
            if targets is None and isinstance(node.func, ast.Attribute):
                targets = [node.func.value]
        elif isinstance(node, ast.AugAssign) and not is_numeric(node):
            targets = [node.target]
        for target in targets or ():
            name = root(target)
            if name is None or name in given or not sharing.of(name) <= own:
                return True
    return False


def is_numeric(stmt: ast.AugAssign) -> bool:
    """Whether it can only be about numbers: `i += 1` changes no object that others hold."""
    return isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, (int, float))
