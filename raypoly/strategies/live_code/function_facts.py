"""What a slicer knows of every function in a program before it reads one of them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from raypoly.strategies.live_code.bindings import (
    PURE_MODULES,
    Aliases,
    bound_here,
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
                calls.setdefault(node.name, set()).update(
                    f.id if isinstance(f, ast.Name) else f.attr
                    for f in called
                    if isinstance(f, (ast.Name, ast.Attribute))
                )
                if not isinstance(node, ast.ClassDef) and (
                    _changes_others(node, sharing) or (prints and _prints(node))
                ):
                    effectful.add(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in stores(node.targets):
                    free.setdefault(name, set()).update(loads(node.value) - parameters(node.value.args))
        while True:
            more = {name for name, called_names in calls.items() if called_names & effectful} - effectful
            if not more:
                foreign = frozenset(loads(tree) - bound_here(tree.body)) if prints else frozenset()
                return cls(free, effectful, sharing, prints, foreign)
            effectful |= more

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
