"""Places of a program that may do nothing: each can be switched off while the program runs, or taken out of its source.

    switched("def f(a):\\n return sorted(a, key=lambda v: 0)")     # compiled once, with switches
    without(source, {3: (1, None)})                               # the source, with site 3 reduced

A site is a branch (which may go one way only), a statement (left out), an expression (a part of itself) or all calls
of one function (what they gave before, in another order). Both functions walk one tree in one order, so that numbers
agree. The names that are put in are no identifiers.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType
from typing import Any

from raypoly.strategies.live_code.bindings import COMPREHENSIONS, nodes, parameters, stores
from raypoly.strategies.live_code.constructs import called, construct_of

FILE = "<observed>"
Choices = Mapping[int, tuple[int, Any]]
"""By site: which way it is reduced, from 1, and the value that calls give."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEFT_OUT = (ast.Expr, ast.AugAssign, ast.For, ast.With, ast.Try, ast.Assert, ast.Delete)
_VALUES = (ast.Call, ast.BinOp, ast.BoolOp, ast.UnaryOp, *COMPREHENSIONS)
# a part of such a call is of another kind than the call
_WHOLE_NAMES = "range len print ord chr isinstance input super type hash id round divmod"
_COMMON_NAMES = "sorted set list tuple dict sum min max any all len str int"
_CACHES = frozenset({"lru_cache", "cache"})
# builtins and methods whose work grows with what they are given, or belong to
_BY_SIZE_NAMES = """
    sorted sum max min list set tuple dict frozenset any all map filter zip enumerate reversed Counter deque heapify
    nlargest nsmallest accumulate reduce join sort copy index count remove insert extend reverse update find replace
    split union intersection difference most_common elements
"""
_WHOLE, _COMMON, _BY_SIZE = (frozenset(names.split()) for names in (_WHOLE_NAMES, _COMMON_NAMES, _BY_SIZE_NAMES))
_BUILTIN_NAMES = frozenset(vars(builtins))
_MOST_SMALL, _MOST_DIRECT, _MOST_COPIES = 4, 2, 3
_BITWISE = (ast.BitOr, ast.BitXor, ast.BitAnd)
_LOAD = ast.Load()
# what is put in stands nowhere
_AT: Any = {"lineno": 1, "col_offset": 0}


@dataclass
class Site:
    """One place, or all calls of a function."""

    kind: str
    """`branch`, `statement`, `loop` (2: its body once), `value`, `calls` or `decorator`. A loop's last ways set its one
    name to a parameter."""
    ways: int
    block: int
    """The tick of the block that it stands in."""
    first: int = 0
    last: int = 0
    """Ticks of what is in it, without `last`."""
    sites: range = range(0)
    common: bool = False
    """A sort, a copy or the like."""
    counts: bool = False
    """A sum, a product or the like."""
    calls: frozenset[int] = frozenset()
    """Sites of the functions that are called in it."""
    parts: list[frozenset[int]] = field(default_factory=list)
    """By way: the sites in the part that an expression would be, whose own reductions it would undo."""
    both: bool = False
    """Whether a branch has something on both sides."""
    arms: tuple[int, int] = (0, 0)
    """Ticks of a branch's two sides; of a loop's body, and of its beginning."""


@dataclass
class Switched:
    """A module whose sites have switches and whose blocks count, by the names that `Reduction` gives."""

    code: CodeType
    sites: list[Site]
    ticks: int
    constructs: dict[int, str]
    """By tick: the construct whose rounds it counts; `function` where a function begins."""


def switched(source: str) -> Switched:
    """Raises `SyntaxError`."""
    tree = ast.parse(source)
    walk = _Walk(tree, None)
    code = compile(walk.visit(tree), FILE, "exec", dont_inherit=True)
    for number, within in walk.parts:
        found = frozenset(walk.numbers[id(node)] for node in within if id(node) in walk.numbers)
        walk.sites[number].parts.append(found)
    return Switched(code, walk.sites, walk.ticks, walk.constructs)


def without(source: str, choices: Choices) -> str:
    """The source of the program with what `choices` say."""
    tree = ast.parse(source)
    return ast.unparse(_Walk(tree, choices).visit(tree))


class _Walk(ast.NodeTransformer):
    """Puts switches in, or reduces what `choices` say."""

    def __init__(self, tree: ast.Module, choices: Choices | None) -> None:
        self.choices, self.reduces = choices or {}, choices is not None
        self.sites: list[Site] = []
        self.ticks = 1  # the first is the module's
        self.block = 0
        self.inside = 0  # above 0: in a part that an expression may be, which has no sites of its own
        self.groups: dict[str, int] = {}
        self.numbers: dict[int, int] = {}
        self.parts: list[tuple[int, Sequence[ast.AST]]] = []
        self.constructs: dict[int, str] = {}
        self.parameters: list[str] = []
        for node in nodes(tree):
            if isinstance(node, _FUNCTIONS) and node.name not in self.groups and not node.name.startswith("__"):
                self.groups[node.name] = len(self.sites)
                self.sites.append(Site("calls", 1, 0))

    def chosen(self, number: int) -> int:
        return self.choices.get(number, (0, None))[0]

    def tick(self, construct: str | None = None) -> ast.expr:
        if construct is not None:
            self.constructs[self.ticks] = construct
        self.ticks += 1
        return ast.Call(_item("@t", self.ticks - 1), [], [], **_AT)

    def site(self, kind: str, ways: int, node: ast.AST) -> int:
        names = {called(part) for part in nodes(node) if isinstance(part, ast.Call)}
        calls = frozenset(self.groups[name] for name in names & self.groups.keys())
        self.sites.append(Site(kind, ways, self.block, self.ticks, calls=calls))
        return len(self.sites) - 1

    def close(self, number: int) -> None:
        site = self.sites[number]
        site.last, site.sites = self.ticks, range(number + 1, len(self.sites))

    def switch(self, number: int, whole: ast.expr, ways: list[ast.expr]) -> ast.expr:
        self.close(number)
        if self.reduces:
            return [whole, *ways][self.chosen(number)]
        found = ways[-1]
        for way in range(len(ways) - 1, 0, -1):
            found = _either(_is_reduced(number, way), ways[way - 1], found)
        return _either(_state(number), found, whole)

    def body(self, block: list[ast.stmt], construct: str | None = None) -> list[ast.stmt]:
        """A block that counts when it begins."""
        outer, self.block = self.block, self.ticks
        begin = ast.Expr(self.tick(construct), **_AT)
        found = self.statements(block)
        self.block = outer
        if self.reduces:
            return found
        place = next((at for at, part in enumerate(found) if not isinstance(part, (ast.Global, ast.Nonlocal))), 0)
        return [*found[:place], begin, *found[place:]]

    def statements(self, block: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for stmt in block:
            is_text = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
            if isinstance(stmt, ast.While):
                found += self.loop(stmt)
            elif isinstance(stmt, _LEFT_OUT) and not is_text:
                found += self.statement(stmt)
            else:
                new = self.visit(stmt)
                found += new if isinstance(new, list) else [new]
        return found or [ast.Pass(**_AT) for _ in block[:1]]

    def statement(self, stmt: ast.stmt) -> list[ast.stmt]:
        copies = self.copies(stmt)
        number = self.site("statement", 1 + len(copies), stmt)
        new: list[ast.stmt] = [self.visit(stmt)]
        self.close(number)
        if self.reduces:
            ways: list[list[ast.stmt]] = [new, [], *([copy] for copy in copies)]
            return ways[self.chosen(number)]
        # a target that is no name is not asked twice: that could change something
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name) and _explodes(stmt):
            new.append(ast.Expr(_call("@big", ast.Name(stmt.target.id, _LOAD, **_AT)), **_AT))
        left_out = ast.If(ast.UnaryOp(ast.Not(), _state(number), **_AT), new, [], **_AT)
        return [left_out, *_switched_copies(number, 2, copies)]

    def copies(self, loop: ast.stmt) -> list[ast.stmt]:
        """A loop that leaves one name may have left a parameter: assignments that say so."""
        if not isinstance(loop, (ast.For, ast.While)):
            return []
        names = stores(loop.body) - (stores([loop.target]) if isinstance(loop, ast.For) else set())
        if len(names) != 1:
            return []
        (name,) = names
        sources = [source for source in self.parameters if source != name][:_MOST_COPIES]
        to, get = ast.Name(name, ast.Store(), **_AT), [ast.Name(source, _LOAD, **_AT) for source in sources]
        return [ast.Assign([to], source, **_AT) for source in get]

    def loop(self, node: ast.While) -> list[ast.stmt]:
        """A `while`: left out, or its body once."""
        copies = self.copies(node)
        number = self.site("loop", 2 + len(copies), node)
        entry, node.test = self.tick(), self.visit(node.test)
        self.sites[number].arms = self.ticks, self.sites[number].first
        node.body = self.body(node.body, "while")
        node.orelse = self.statements(node.orelse)
        self.close(number)
        if not self.reduces:
            begin = ast.Expr(_call("@once", _constant(number), entry), **_AT)
            node.test = _either(_state(number), _call("@once", _constant(number)), node.test)
            return [begin, *_switched_copies(number, 3, copies), node]
        once = node.body[:-1] if isinstance(node.body[-1], ast.Break) else node.body
        if any(isinstance(part, (ast.Break, ast.Continue)) for stmt in once for part in nodes(stmt)):
            once = [ast.While(_constant(True), [*once, ast.Break(**_AT)], [], **_AT)]
        once = once or [ast.Pass(**_AT)]
        ways: list[list[ast.stmt]] = [[node], [], once, *([copy] for copy in copies)]
        return ways[self.chosen(number)]

    def visit_Module(self, node: ast.Module) -> ast.Module:
        node.body = self.statements(node.body)
        return node

    visit_ClassDef = visit_Module  # type: ignore[assignment]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        first, place = self.ticks, len(self.sites)
        outer, self.parameters = self.parameters, sorted(parameters(node.args))
        node.body = self.body(node.body, "function")
        self.parameters = outer
        if node.name in self.groups:
            group = self.sites[self.groups[node.name]]
            group.first, group.last, group.sites = first, self.ticks, range(place, len(self.sites))
        node.decorator_list = [new for old in node.decorator_list for new in self.decorator(old)]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def decorator(self, node: ast.expr) -> list[ast.expr]:
        named = node.func if isinstance(node, ast.Call) else node
        if (getattr(named, "id", "") or getattr(named, "attr", "")) not in _CACHES:
            return [node]
        number = self.site("decorator", 1, node)
        if self.reduces and self.chosen(number):
            return []
        return [self.switch(number, node, [ast.Name("@same", _LOAD, **_AT)])]

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        begin, node.body = self.tick("function"), self.visit(node.body)
        if not self.reduces:
            node.body = ast.BoolOp(ast.And(), [begin, node.body], **_AT)
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        number = self.site("branch", 2, node)
        self.sites[number].both = bool(node.orelse)
        test, true = self.visit(node.test), self.ticks
        body, false = self.body(node.body), self.ticks
        orelse = self.body(node.orelse)
        self.sites[number].arms = (true, false)
        if self.reduces:
            self.close(number)
            whole = ast.If(test, body, orelse, **_AT)
            ways: list[list[ast.stmt]] = [[whole], body, orelse]
            return ways[self.chosen(number)]
        return ast.If(self.forced(number, test), body, orelse, **_AT)

    def forced(self, number: int, test: ast.expr) -> ast.expr:
        return self.switch(number, test, [_constant(True), _constant(False)])

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        if self.inside:
            return self.generic_visit(node)
        number = self.site("branch", 2, node)
        self.sites[number].both = True
        test, arms, places = self.visit(node.test), list[ast.expr](), list[int]()
        for arm in (node.body, node.orelse):
            outer, self.block = self.block, self.ticks
            places.append(self.ticks)
            begin, new = self.tick(), self.visit(arm)
            arms.append(new if self.reduces else ast.BoolOp(ast.And(), [begin, new], **_AT))
            self.block = outer
        self.sites[number].arms = (places[0], places[1])
        if self.reduces:
            self.close(number)
            return [_either(test, *arms), *arms][self.chosen(number)]
        return _either(self.forced(number, test), *arms)

    def visit_For(self, node: ast.For) -> ast.For:
        node.iter = self.visit(node.iter)
        node.body = self.body(node.body, "for")
        node.orelse = self.statements(node.orelse)
        return node

    visit_AsyncFor = visit_For  # type: ignore[assignment]

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        node.body = self.body(node.body)
        return node

    def visit_With(self, node: ast.With) -> ast.With:
        node.items = [self.visit(item) for item in node.items]
        node.body = self.statements(node.body)
        return node

    visit_AsyncWith = visit_With  # type: ignore[assignment]

    def visit_Try(self, node: ast.Try) -> ast.Try:
        node.body = self.statements(node.body)
        for handler in node.handlers:
            handler.body = self.body(handler.body)
        node.orelse = self.statements(node.orelse)
        node.finalbody = self.statements(node.finalbody)
        return node

    visit_TryStar = visit_Try  # type: ignore[assignment]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        # the statement itself is the site
        node.value = self.counted(node.value) if isinstance(node.value, ast.Call) else self.visit(node.value)
        return node

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.expr) or self.inside:
            return self.counted(node) if isinstance(node, ast.expr) else super().visit(node)
        parts = list(_parts(node))
        if not parts:
            return self.counted(node)
        ways = []
        number = self.site("value", len(parts), node)
        self.numbers[id(node)] = number
        self.parts += [(number, nodes(part)) for part in parts]
        self.sites[number].common = isinstance(node, ast.Call) and called(node) in _COMMON
        self.sites[number].counts = isinstance(node, ast.BinOp) and not isinstance(node.op, _BITWISE)
        self.inside += 1
        for part in parts:
            ways.append(self.counted(_copied(part)))
        self.inside -= 1
        return self.switch(number, self.counted(node), ways)

    def counted(self, node: ast.expr) -> Any:
        """With its parts visited, and what it does counted."""
        name = called(node) if isinstance(node, ast.Call) else ""
        new: Any = super().visit(node)
        if self.reduces:
            way, value = self.choices.get(self.groups.get(name, -1), (0, None))
            return _constant(value) if way else new
        if isinstance(new, COMPREHENSIONS):
            new.generators[-1].ifs.insert(0, self.tick(construct_of(new)))
        elif isinstance(new, ast.BinOp) and isinstance(new.op, (ast.Pow, ast.LShift)):
            return _call("@pow" if isinstance(new.op, ast.Pow) else "@shift", new.left, new.right)
        elif isinstance(new, ast.BinOp) and (isinstance(new.op, ast.Mult) or _doubles(new.left, new.right)):
            return _call("@big", new)
        elif isinstance(new, ast.Compare):
            pairs = zip(new.ops, new.comparators, strict=True)
            new.comparators = [
                _call("@in", right) if isinstance(op, (ast.In, ast.NotIn)) else right for op, right in pairs
            ]
        elif isinstance(new, ast.Subscript) and isinstance(new.slice, ast.Slice) and isinstance(new.ctx, ast.Load):
            return _call("@z", new)
        elif name in self.groups:
            group = self.groups[name]
            return _either(_state(group), _call("@pick", _constant(group)), _call("@got", _constant(group), new))
        elif name in _BY_SIZE and isinstance(new, ast.Call):
            new.args = [arg if isinstance(arg, (ast.Starred, ast.Lambda)) else _call("@z", arg) for arg in new.args]
            if isinstance(new.func, ast.Attribute):
                new.func.value = _call("@z", new.func.value)
            construct = construct_of(new)
            if construct and len(new.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in new.args):
                self.tick(construct)
                new.args[1] = _call("@each", _constant(self.ticks - 1), new.args[1])
        return new


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """What could stand in its place: the smallest parts first, then the direct ones."""
    if isinstance(node, ast.Subscript):
        if not isinstance(node.ctx, ast.Load):
            return
        if not isinstance(node.slice, ast.Slice) and not isinstance(
            node.value, (ast.Tuple, ast.List, ast.Dict, ast.Call)
        ):
            return
    elif not isinstance(node, _VALUES) or (isinstance(node, ast.Call) and called(node) in _WHOLE):
        return
    within = [part for part in _within(node) if getattr(part, "id", "") not in _BUILTIN_NAMES]
    direct = [part for part in _direct(node) if not isinstance(part, (ast.Constant, ast.Lambda, ast.GeneratorExp))]
    named, small = set[str](), list[ast.expr]()
    for part in sorted(within, key=lambda part: len(nodes(part))):
        if not isinstance(part, ast.Name) or part.id not in named:
            small.append(part)
            named |= {part.id} if isinstance(part, ast.Name) else set()
    small = small[:_MOST_SMALL]
    yield from small
    more = (part for part in direct if part not in small and not (isinstance(part, ast.Name) and part.id in named))
    yield from islice(more, _MOST_DIRECT)


def _explodes(stmt: ast.AugAssign) -> bool:
    return isinstance(stmt.op, (ast.Mult, ast.Pow, ast.LShift)) or _doubles(stmt.target, stmt.value)


def _doubles(left: ast.expr, right: ast.expr) -> bool:
    # what bounded it may be left out
    return isinstance(left, ast.Name) and isinstance(right, ast.Name) and left.id == right.id


def _direct(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return node.elts
    if isinstance(node, COMPREHENSIONS):
        return [node.generators[0].iter] if len(node.generators) == 1 else []
    if isinstance(node, ast.Call):
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*owner, *(arg.value if isinstance(arg, ast.Starred) else arg for arg in node.args)]
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _within(node: ast.expr) -> Iterator[ast.expr]:
    # expressions below, as far as their names are those around it
    for part in _direct(node):
        if isinstance(part, ast.Slice):
            continue
        if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp, *COMPREHENSIONS)):
            yield part
        if not isinstance(part, ast.Lambda):
            yield from _within(part)


def _item(name: str, number: int) -> ast.expr:
    return ast.Subscript(ast.Name(name, _LOAD, **_AT), _constant(number), _LOAD, **_AT)


def _switched_copies(number: int, first: int, copies: list[ast.stmt]) -> list[ast.stmt]:
    return [ast.If(_is_reduced(number, way), [copy], [], **_AT) for way, copy in enumerate(copies, first)]


def _state(number: int) -> ast.expr:
    return _item("@s", number)


def _is_reduced(number: int, way: int) -> ast.expr:
    return ast.Compare(_state(number), [ast.Eq()], [_constant(way)], **_AT)


def _constant(value: Any) -> ast.expr:
    return ast.Constant(value, **_AT)


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, _LOAD, **_AT), list(args), [], **_AT)


def _either(test: ast.expr, then: ast.expr, otherwise: ast.expr) -> ast.expr:
    return ast.IfExp(test, then, otherwise, **_AT)


def _copied(node: Any) -> Any:
    if isinstance(node, list):
        return [_copied(item) for item in node]
    if not isinstance(node, ast.AST):
        return node
    return type(node)(**{name: _copied(value) for name, value in vars(node).items()})
