"""Number the names that a program binds itself, scope by scope, in order of first use.

rename(tree)      # a, b ... z, A ... and the fields of the program's own classes too
"""

from __future__ import annotations

import ast
import keyword
from collections import deque
from collections.abc import Iterator
from itertools import count, product
from string import ascii_letters, ascii_lowercase
from typing import Any

from raypoly.strategies.live_code.bindings import (
    Comprehension,
    Rewriter,
    bound_here,
    declared,
    loads,
    nodes,
    parameters,
    stores,
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# attributes that objects from elsewhere have too
_FOREIGN = frozenset({"val", "next", "left", "right", "random", "neighbors", "children"}).union(
    *(dir(kind) for kind in (list, dict, set, str, int, float, bytes, tuple, deque))
)
# classes that tests bring along and look for: a program's own copy of one stands for it
_GIVEN = frozenset({"ListNode", "TreeNode"})
_APART = "'"
_GIVEN_FIELDS = frozenset({"val", "next", "left", "right"})


def rename(tree: ast.Module) -> ast.Module:
    """The program (changed in place) with letters for its own names and its classes' fields."""
    own = bound_here(tree.body) | {name for node in nodes(tree) if isinstance(node, ast.Global) for name in node.names}
    # tests look for these classes by name
    own -= _GIVEN
    renamed = _Rename(tree, own).scoped(tree, own)
    assert isinstance(renamed, ast.Module)
    return renamed


def _letters(taken: set[str]) -> Iterator[str]:
    # letters, then words of two and more: a model reads each of them as one token
    words = ("".join(word) for size in count(2) for word in product(ascii_lowercase, repeat=size))
    for name in ascii_letters:
        if name not in taken:
            yield name
    yield from (word for word in words if word not in taken and not keyword.iskeyword(word))


def tell_apart(tree: ast.Module) -> None:
    """Give each scope below the top names of its own (in place), by a mark on one that another scope has too."""
    top = bound_here(tree.body) | {name for node in nodes(tree) if isinstance(node, ast.Global) for name in node.names}
    _TellApart(tree, top).scoped(tree, top)


class _Rename(Rewriter):
    def __init__(self, tree: ast.Module, own: set[str]) -> None:
        classes = [node for node in nodes(tree) if isinstance(node, ast.ClassDef)]
        self.methods = {n.name for c in classes for n in c.body if hasattr(n, "name")}
        self.fields = _fields(tree, classes)
        self.names = _letters(loads(tree) - own)
        self.attributes: dict[str, str] = {}
        self.scopes: list[tuple[dict[str, str | None], bool]] = []
        self.arguments: dict[str, dict[str, str]] = {}
        """By a function's old name: its parameters, old and new."""
        self.calls: list[tuple[str, ast.keyword]] = []

    def resolve(self, name: str) -> str:
        inside = False
        for scope, is_class in reversed(self.scopes):
            if name in scope and not (is_class and inside):
                new = scope[name]
                if new is None:
                    new = scope[name] = self.new_name(name)
                return new
            inside = inside or not is_class
        return name

    def new_name(self, name: str) -> str:
        return next(self.names)

    def attribute(self, name: str) -> str:
        """A method's or field's new name, the same in every class of the program."""
        if name.startswith("__") or (name not in self.methods and name not in self.fields):
            return name
        if name not in self.attributes:
            self.attributes[name] = next(self.names)
        return self.attributes[name]

    def scoped(self, node: ast.AST, names: set[str]) -> ast.AST:
        """Visit the children with these names bound in a scope of their own."""
        self.scopes.append((dict.fromkeys(sorted(names)), False))
        self.below(node)
        self.scopes.pop()
        # arguments given by name to the program's own functions follow the parameters
        for function, given in self.calls:
            if given.arg is not None:
                given.arg = self.arguments.get(function, {}).get(given.arg, given.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.resolve(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.resolve(node.arg)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.value = self.visit(node.value)
        node.attr = self.attribute(node.attr)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        self.calls += [(name, given) for given in node.keywords]
        return self.below(node)

    def _captured(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> Any:
        node.name = self.resolve(node.name) if node.name else None
        return self.below(node)

    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _captured

    def _declared(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = [self.resolve(name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global = _declared

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        old = node.name
        name = self.attribute(old) if old in self.methods else self.resolve(old)
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        self._defaults(node.args)
        inner = (bound_here(node.body) | parameters(node.args)) - declared(node.body)
        self.scopes.append((dict.fromkeys(sorted(inner)), False))
        before = sorted(parameters(node.args))
        self._parameters(node.args)
        node.body = [self.visit(stmt) for stmt in node.body]
        self.arguments.setdefault(old, {}).update({name: self.resolve(name) for name in before})
        self.scopes.pop()
        node.name = name
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.resolve(node.name)
        mine = self.class_scope(bound_here(node.body) - self.methods)
        node.bases = [self.visit(base) for base in node.bases]
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        self.scopes.append((mine, True))
        node.body = [self.visit(stmt) for stmt in node.body]
        self.scopes.pop()
        return node

    def class_scope(self, names: set[str]) -> dict[str, str | None]:
        """New names of what a class binds, as far as known."""
        return {name: self.attribute(name) if name in self.fields else None for name in sorted(names)}

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._defaults(node.args)
        self.scopes.append((dict.fromkeys(sorted(parameters(node.args))), False))
        self._parameters(node.args)
        node.body = self.visit(node.body)
        self.scopes.pop()
        return node

    def _defaults(self, args: ast.arguments) -> None:
        # what a parameter is by default is said outside of the function
        args.defaults = [self.visit(value) for value in args.defaults]
        args.kw_defaults = [None if value is None else self.visit(value) for value in args.kw_defaults]

    def _parameters(self, args: ast.arguments) -> None:
        for name in ("posonlyargs", "args", "kwonlyargs"):
            setattr(args, name, [self.visit(arg) for arg in getattr(args, name)])
        args.vararg = self.visit(args.vararg) if args.vararg else None
        args.kwarg = self.visit(args.kwarg) if args.kwarg else None

    def _comprehension(self, node: Comprehension) -> ast.AST:
        # generators bind before the element is read, though it is written first; the first source is read outside
        node.generators[0].iter = self.visit(node.generators[0].iter)
        self.scopes.append((dict.fromkeys(sorted(stores(g.target for g in node.generators))), False))
        for place, generator in enumerate(node.generators):
            if place:
                generator.iter = self.visit(generator.iter)
            generator.target = self.visit(generator.target)
            generator.ifs = [self.visit(test) for test in generator.ifs]
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        self.scopes.pop()
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


class _TellApart(_Rename):
    """Keeps attributes, names at the top, and names of the first scope that has them."""

    def __init__(self, tree: ast.Module, top: set[str]) -> None:
        super().__init__(tree, top)
        self._times = dict.fromkeys(top | loads(tree), 1)

    def scoped(self, node: ast.AST, names: set[str]) -> ast.AST:
        self.scopes.append(({name: name for name in names}, False))
        return super().scoped(node, set())

    def new_name(self, name: str) -> str:
        times = self._times[name] = self._times.get(name, 0) + 1
        return name if times == 1 else f"{name}{_APART}{times}"

    def attribute(self, name: str) -> str:
        return name

    def class_scope(self, names: set[str]) -> dict[str, str | None]:
        return {name: name for name in names}


def _fields(tree: ast.Module, classes: list[ast.ClassDef]) -> set[str]:
    # attributes that the program's own classes alone have: class-level names and what methods store in `self`
    handles = {first.arg for c in classes for m in c.body if isinstance(m, _FUNCTIONS) for first in m.args.args[:1]}
    attributes = [node for node in nodes(tree) if isinstance(node, ast.Attribute)]
    mine = [node for node in attributes if isinstance(node.value, ast.Name) and node.value.id in handles]
    stored = {node.attr for node in mine if not isinstance(node.ctx, ast.Load)}
    stored |= {name for c in classes for name in bound_here(c.body) if not c.decorator_list and not c.bases}
    for node in attributes:
        if node.attr in _FOREIGN and node not in mine:
            stored.discard(node.attr)
    return stored - _GIVEN_FIELDS if any(c.name in _GIVEN for c in classes) else stored
