"""Which names a piece of code reads, binds and may share an object under."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence, Set

PURE_MODULES = frozenset(
    {"math", "itertools", "functools", "operator", "collections", "string", "re", "typing", "cmath"}
)
_BUILT_IN = """
    abs all any ascii bin bool bytes callable chr complex dict divmod enumerate filter float format
    frozenset gcd hash hex  id int isinstance issubclass iter len list map max min object oct ord
    pow print range reduce repr reversed round set  slice sorted str sum tuple type zip Counter
    defaultdict deque OrderedDict accumulate chain product permutations  combinations islice
    takewhile dropwhile sqrt isqrt floor ceil log lcm comb perm
"""
PURE_NAMES = frozenset(_BUILT_IN.split())
_METHODS = """
    get keys values items copy count index find rfind startswith endswith lower upper strip lstrip
    rstrip split join replace  isdigit isalpha isalnum union intersection difference issubset
    issuperset bit_length bit_count format title  casefold zfill most_common encode decode
    is_integer
"""
READ_ONLY_METHODS = frozenset(_METHODS.split())
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = (*COMPREHENSIONS, ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN_FIELDS = """
    arg asname attr conversion ctx id is_async kind level module name op rest simple type_comment
"""
_NO_NODES = frozenset(_PLAIN_FIELDS.split())
"""Strings and numbers, and operators and contexts, which have nothing below them."""
_BELOW: dict[type[ast.AST], tuple[str, ...]] = {}
"""The fields of a kind of node that may hold nodes."""
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def is_read_only_method(call: ast.Call) -> bool:
    """Whether a method is called that leaves its owner as it was; a `get` without a key takes from a queue."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in READ_ONLY_METHODS and (name != "get" or bool(call.args))


def loads(node: ast.AST) -> set[str]:
    """Names that the code reads from around it; what its own comprehensions, lambdas and functions bind is left out."""
    found: set[str] = set()
    _load_into(found, node)
    return found


def _load_into(found: set[str], node: ast.AST) -> None:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            found.add(node.id)
    elif isinstance(node, _BINDING):
        found |= _loads_around(node)
    else:
        for child in children(node):
            _load_into(found, child)


def _loads_around(node: ast.AST) -> set[str]:
    """Of a node that binds names for what is in it."""
    found: set[str] = set()
    for child in children(node):
        _load_into(found, child)
    if isinstance(node, COMPREHENSIONS):
        first = loads(node.generators[0].iter)
        return (found - stores([generator.target for generator in node.generators])) | first
    if isinstance(node, ast.Lambda):
        return found - parameters(node.args)
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    own = (bound_here(node.body) | parameters(node.args)) - declared(node.body)
    return found - own


def stores(targets: Iterable[ast.AST]) -> set[str]:
    """Plain names among assignment targets, inside tuples too."""
    return {n.id for t in targets for n in nodes(t) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}


def parameters(args: ast.arguments) -> set[str]:
    """The names of a function's parameters."""
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {arg.arg for arg in every if arg is not None}


def declared(body: Sequence[ast.stmt]) -> set[str]:
    """Names that these statements declare global or nonlocal in their own scope."""
    return {name for node in _own(body) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}


def bound_here(body: Sequence[ast.AST]) -> set[str]:
    """Names that these statements bind in their own scope (functions and classes by name, not by content)."""
    names: set[str] = set()
    for node in _own(body):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, _NAMED) and node.name:
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


def _own(body: Iterable[ast.AST]) -> list[ast.AST]:
    """The nodes of this scope: nested functions are given, not entered; comprehensions give their walruses only."""
    found: list[ast.AST] = []
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, COMPREHENSIONS):
            found.extend(part.target for part in nodes(node) if isinstance(part, ast.NamedExpr))
            continue
        found.append(node)
        if not isinstance(node, _SCOPES):
            todo.extend(children(node))
    return found


def reach(start: Iterable[str], edges: Mapping[str, Set[str]]) -> set[str]:
    """The names that one comes to from these along the edges, these included; a name without any leads nowhere."""
    seen: set[str] = set()
    todo = set(start)
    while todo:
        name = todo.pop()
        seen.add(name)
        todo |= edges.get(name, set()) - seen
    return seen


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one; names and constants, which are most of a tree, have none worth visiting."""
    kind = type(node)
    fields = _BELOW.get(kind)
    if fields is None:
        none = kind in (ast.Name, ast.Constant)
        fields = _BELOW[kind] = () if none else tuple(name for name in kind._fields if name not in _NO_NODES)
    below: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if type(value) is list:
            for item in value:
                if isinstance(item, ast.AST):
                    below.append(item)
        elif isinstance(value, ast.AST):
            below.append(value)
    return below


def nodes(tree: ast.AST) -> list[ast.AST]:
    """The tree's nodes, level by level, as `ast.walk` gives them but for operators and contexts; twice as fast."""
    found = [tree]
    for node in found:
        found.extend(children(node))
    return found


def transformed(transformer: ast.NodeTransformer, tree: ast.Module) -> ast.Module:
    """What the transformer makes of a module: a module."""
    result = transformer.visit(tree)
    assert isinstance(result, ast.Module)
    return result


def root(node: ast.AST) -> str | None:
    """The name that an attribute or subscript chain hangs on: `a` of `a.b[c]`; None where it is no such chain."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


class Aliases:
    """Names of one scope that may stand for the same object, because one was assigned from the other."""

    def __init__(self, body: Sequence[ast.AST]) -> None:
        self._parent: dict[str, str] = {}
        for node in _own(body):
            if isinstance(node, ast.Assign):
                self._join(stores(node.targets), _sources(node.value))
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                self._join(stores([node.target]), _sources(node.iter))
            elif isinstance(node, ast.NamedExpr):
                self._join({node.target.id}, _sources(node.value))

    def of(self, name: str) -> set[str]:
        """The name and every other one that may share its object."""
        top = self._top(name)
        return {name} | {other for other in self._parent if self._top(other) == top}

    def _join(self, targets: set[str], sources: set[str]) -> None:
        names = sorted(targets | sources)
        for other in names[1:]:
            self._parent[self._top(other)] = self._top(names[0])

    def _top(self, name: str) -> str:
        parent = self._parent.setdefault(name, name)
        while parent != name:
            name, parent = parent, self._parent.setdefault(parent, parent)
        return name


def _sources(node: ast.AST) -> set[str]:
    """Names whose object the value may be, or may hold. Numbers made by arithmetic share nothing."""
    if isinstance(node, (ast.BinOp, ast.Compare, ast.UnaryOp, ast.Constant, ast.JoinedStr, ast.Lambda)):
        return set()
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("range", "len", "sum", "int"):
        return set()
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    return set().union(*(_sources(child) for child in children(node)), set())
