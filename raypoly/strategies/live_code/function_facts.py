"""What a slicer knows of every function in a program before it reads one of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from raypoly.strategies.live_code.bindings import (
    PURE_MODULES,
    PURE_NAMES,
    Aliases,
    bound_here,
    children,
    declared,
    is_read_only_method,
    loads,
    nodes,
    parameters,
    reach,
    root,
    stores,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
CHANGES_FIRST = frozenset(
    {"heappush", "heappop", "heapify", "heapreplace", "heappushpop", "insort", "insort_left", "insort_right", "shuffle"}
)
"""Library functions that change their first argument, and nothing else."""


_NUMBERS = (ast.Compare, ast.Constant, ast.JoinedStr)
_ARITHMETIC = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_COUNTS = frozenset({"len", "range", "sum", "int", "ord", "abs", "str", "bool", "isinstance", "float"})


class Sharing(Aliases):
    """Names of a whole program that may stand for the same object, hold it or be held by it. Reads it once.

        sharing = Sharing(ast.parse("rows = []\\nrow = []\\nrows.append(row)"))
        sharing.of("row")       ->  {"row", "rows"}

    One class of names a connected group of flows, without direction, scope or time: what is told apart here is surely
    apart. `Aliases` knows less of what is held and is told scope by scope.
    """

    def __init__(self, tree: ast.Module) -> None:
        super().__init__([])
        every = nodes(tree)
        self._bound = {n.id for n in every if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self._bound |= {n.arg for n in every if isinstance(n, ast.arg)}
        self._functions: dict[str, set[str]] = {}
        for node in every:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._functions.setdefault(node.name, set()).update(parameters(node.args))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in stores(node.targets):
                    self._functions.setdefault(name, set()).update(parameters(node.value.args))
        for node in every:
            self._flow(node)
        groups: dict[str, set[str]] = {}
        for name in list(self._parent):
            groups.setdefault(self._top(name), set()).add(name)
        self._groups = {name: group for group in groups.values() for name in group}

    def of(self, name: str) -> set[str]:
        return self._groups.get(name, {name})

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
            given = [n.value for n in nodes(node) if isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) and n.value]
            self._join({node.name}, set().union(*map(self._held, given), set()))
        elif isinstance(node, ast.Call):
            self._call(node)

    def _call(self, call: ast.Call) -> None:
        given = set().union(*(self._held(a) for a in [*call.args, *(k.value for k in call.keywords)]), set())
        if isinstance(call.func, ast.Attribute):
            name, owner = call.func.attr, self._held(call.func.value)
        else:
            name, owner = getattr(call.func, "id", ""), self._held(call.func)
            if name in PURE_NAMES and name not in self._functions and name not in self._bound:
                return
        self._join(owner | self._functions.get(name, set()), given)

    def _owners(self, targets: Iterable[ast.expr]) -> set[str]:
        """The names that the targets bind, or whose objects they store into."""
        places = (n for t in targets for n in nodes(t) if isinstance(n, (ast.Subscript, ast.Attribute)))
        return stores(targets) | {name for place in places if (name := root(place)) is not None}

    def _held(self, node: ast.AST) -> set[str]:
        """Names whose object the value may be, hold, or be made of."""
        if isinstance(node, _NUMBERS) or (isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC)):
            return set()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _COUNTS:
            return set()
        if isinstance(node, ast.Name):
            return {node.id} if node.id in self._bound or node.id in self._functions else set()
        return set().union(*(self._held(child) for child in children(node)), set())


@dataclass(frozen=True)
class FunctionFacts:
    """What is known of every function in the program, by its simple name."""

    free: dict[str, set[str]]
    """Names that a function (class, named lambda) reads and doesn't bind itself."""
    effectful: set[str]
    """Functions that may change something beyond their own locals."""
    sharing: Aliases | None = None
    """Which names may share objects, where that was asked for the whole program."""
    prints: bool = False
    """Whether what is printed, or done to anything from outside, is the program's answer."""
    foreign: frozenset[str] = frozenset()
    """Names that the program reads and never binds."""

    @classmethod
    def read(cls, tree: ast.Module, sharing: Aliases | None = None, prints: bool = False) -> FunctionFacts:
        """`sharing` makes the slicer careful; `prints` is for whole programs, whose answer is their output."""
        free: dict[str, set[str]] = {}
        calls: dict[str, set[str]] = {}
        effectful: set[str] = set()
        for node in nodes(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                own = set() if isinstance(node, ast.ClassDef) else bound_here(node.body) | parameters(node.args)
                free.setdefault(node.name, set()).update(loads(node) - (own - declared(node.body)))
                called = {n.func for n in nodes(node) if isinstance(n, ast.Call)}
                names = {f.id if isinstance(f, ast.Name) else getattr(f, "attr", "") for f in called}
                calls.setdefault(node.name, set()).update(names)
                acts = not isinstance(node, ast.ClassDef) and _changes_others(node, sharing)
                if acts or (prints and not isinstance(node, ast.ClassDef) and _prints(node)):
                    effectful.add(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in stores(node.targets):
                    free.setdefault(name, set()).update(loads(node.value) - parameters(node.value.args))
        while more := {name for name, called_names in calls.items() if called_names & effectful} - effectful:
            effectful |= more
        foreign = frozenset(loads(tree) - bound_here(tree.body)) if prints else frozenset()
        return cls(free, effectful, sharing, prints, foreign)

    def expand(self, names: set[str]) -> frozenset[str]:
        """The names and whatever the functions among them read, functions of functions included."""
        return frozenset(reach(names, self.free))


def _changes_others(function: Function, sharing: Aliases | None) -> bool:
    """Whether the body may change an object that it did not make: a parameter, a free name, `self`."""
    if declared(function.body):
        return True
    own = bound_here(function.body)
    aliases = sharing or Aliases(function.body)
    given = parameters(function.args)
    for node in nodes(function):
        target: ast.expr | None = None
        if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not reads_only(node):
            target = node.func.value
        elif (
            sharing and isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CHANGES_FIRST
        ):
            target = node.args[0] if node.args else None
        elif sharing and isinstance(node, ast.AugAssign) and not is_numeric(node):
            target = node.target
        if target is not None:
            name = root(target)
            if name is None or not aliases.of(name) <= own or (sharing and name in given):
                return True
    return False


def _prints(function: Function) -> bool:
    return any(isinstance(n, ast.Call) and getattr(n.func, "id", "") in ("print", "exit") for n in nodes(function))


def is_numeric(stmt: ast.AugAssign) -> bool:
    """Whether the statement can only be about numbers: `i += 1` changes no object that others hold."""
    return isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, (int, float))


def reads_only(call: ast.Call) -> bool:
    """Whether calling this method leaves its owner as it was."""
    assert isinstance(call.func, ast.Attribute)
    return is_read_only_method(call) or root(call.func.value) in PURE_MODULES
