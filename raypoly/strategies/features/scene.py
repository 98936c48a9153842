"""One program as a reader sees it: loops around a node, what is done to each container, who calls whom.

    scene = Scene(live_program(source, entry_point).tree)
    scene.done_to["d"]  ->  [("append", <ast.Call>), ("pop_last", <ast.Call>)]

It expects a live program, where every binding has its own name. A helper's parameter shares its uses with the
containers that it is given, so that a helper hides nothing. What was found of a piece of code is kept with its node.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from itertools import pairwise, takewhile
from typing import TypeGuard

from raypoly.strategies.live_code.bindings import COMPREHENSIONS, children
from raypoly.strategies.live_code.constructs import called, recursive_functions
from raypoly.strategies.live_code.library_effects import MODULES, library_name

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class Scene:
    """The facts of one tree, found in one walk."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = walk(tree)
        self.parent: dict[int, ast.AST] = {id(c): n for n in self.nodes for c in children(n)}
        self.functions: dict[str, Function] = {}
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                self.functions.update({t.id: node.value for t in node.targets if isinstance(t, ast.Name)})
        self.recursive = recursive_functions(tree)
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.whiles = [node for node in self.nodes if isinstance(node, ast.While)]
        self.both_loops = [node for node in self.nodes if isinstance(node, (ast.For, ast.While))]
        self.called_names = {called(call) for call in self.calls}
        self.library = {name for call in self.calls if (name := library_name(call)) and name not in self.functions}
        self.made: dict[str, list[ast.expr]] = defaultdict(list)
        self.done_to: dict[str, list[tuple[str, ast.AST]]] = defaultdict(list)
        """Kind and place of each use of a container. A kind is a method's name, or `store`, `add_to` (`c[k] += v`),
        `load`, `in`, `each`, `test`, `pop_first`, `pop_last`, `delete`, `fill_in` (`c[k].append(v)`)."""
        self._read()
        self._share_with_parameters()

    def _above(self, node: ast.AST) -> Iterator[ast.AST]:
        while (up := self.parent.get(id(node))) is not None:
            yield up
            node = up

    def around(self, node: ast.AST) -> list[ast.AST]:
        """Enclosing nodes, innermost first, up to the function."""
        return list(takewhile(lambda up: not isinstance(up, Function), self._above(node)))

    def loops(self, node: ast.AST) -> list[ast.For | ast.While]:
        """Statements that repeat a node, innermost first."""
        return [
            at
            for below, at in pairwise([node, *self.around(node)])
            if isinstance(at, ast.While) or (isinstance(at, ast.For) and below is not at.iter)
        ]

    def repeated(self, node: ast.AST) -> bool:
        """Whether a loop, a comprehension, or a loop that calls its function, runs the node more than once."""
        function = self.function(node)
        return any(isinstance(n, (ast.For, ast.While, *COMPREHENSIONS)) for n in self.around(node)) or any(
            called(call) == function and self.loops(call) for call in self.calls
        )

    def function(self, node: ast.AST) -> str | None:
        """The innermost named function around a node."""
        named = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((up.name for up in self._above(node) if isinstance(up, named)), None)

    def kinds(self, name: str) -> set[str]:
        return {kind for kind, _ in self.done_to.get(name, ())}

    def uses(self, name: str, *kinds: str) -> list[ast.AST]:
        """Where something of these kinds is done to a container."""
        return [node for kind, node in self.done_to.get(name, ()) if kind in kinds]

    def statement(self, node: ast.AST) -> ast.AST:
        return next(up for up in (node, *self._above(node)) if isinstance(up, ast.stmt))

    def _read(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
                    if key(target) and _without_last(node.value) == key(target):
                        self.done_to[key(target)].append(("pop_last", node))
            elif isinstance(node, ast.NamedExpr):
                self._bind(node.target, node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.value, (ast.List, ast.ListComp)):
                self.done_to[key(node.target)].append(("extend", node))
            elif isinstance(node, ast.AugAssign) and any(map(is_text, self.made.get(key(node.target), []))):
                self.done_to[key(node.target)].append(("append", node))
            elif isinstance(node, ast.Subscript) and (name := self._whole_chain(node)):
                self.done_to[name].append((self._subscript(node), node))
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Attribute) and node.attr == "get" and key(node.value):
                above = self.parent.get(id(node))
                if not isinstance(above, ast.Call) or above.func is not node:
                    self.done_to[key(node.value)].append(("get", node))
            elif isinstance(node, ast.Compare):
                for op, right in zip(node.ops, node.comparators, strict=True):
                    if isinstance(op, (ast.In, ast.NotIn)) and (name := key(right)):
                        self.done_to[name].append(("in", node))
            elif isinstance(node, (ast.For, ast.comprehension)):
                for name in _iterated(node.iter):
                    self.done_to[name].append(("each", node))
            elif isinstance(node, ast.While):
                for name in {k for part in walk(node.test) if (k := key(part))}:
                    self.done_to[name].append(("test", node))

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            if len(target.elts) == len(value.elts):
                for one, its in zip(target.elts, value.elts, strict=True):
                    self._bind(one, its)
        elif name := key(target):
            self.made[name].append(value)

    def _whole_chain(self, node: ast.Subscript) -> str:
        # the container under `t[i][j]`, asked of the outermost subscript; empty for the inner ones
        above = self.parent.get(id(node))
        if isinstance(above, ast.Subscript) and above.value is node:
            return ""
        owner = node.value
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        return key(owner)

    def _subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.ctx, ast.Load):
            return "load"
        if isinstance(node.ctx, ast.Del):
            return "pop_last" if is_last(node.slice) else "delete"
        return "add_to" if isinstance(self.parent.get(id(node)), ast.AugAssign) else "store"

    def _call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and (name := key(node.func.value)):
            kind = node.func.attr
            if kind == "pop":
                kind = "pop_first" if node.args and is_number(node.args[0], 0) else "pop_last"
            self.done_to[name].append(("pop_first" if kind == "popleft" else kind, node))
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Subscript):
            if node.func.attr in ("append", "add", "extend") and (name := self._whole_chain(node.func.value)):
                self.done_to[name].append(("fill_in", node))
        elif library_name(node) and node.args and (name := key(node.args[0])):
            self.done_to[name].append((library_name(node), node))

    def _share_with_parameters(self) -> None:
        for call in self.calls:
            function = self.functions.get(called(call))
            if function is None:
                continue
            parameters = [arg.arg for arg in function.args.args]
            if isinstance(call.func, ast.Attribute):
                parameters = parameters[1:]
            for parameter, argument in zip(parameters, call.args, strict=False):
                name = key(argument)
                if name and name != parameter and parameter in self.done_to and name in self.done_to | self.made:
                    known = {id(node) for _, node in self.done_to[name]}
                    self.done_to[name].extend(use for use in self.done_to[parameter] if id(use[1]) not in known)


def key(node: ast.AST | None) -> str:
    """Name of a variable or of a field (`a.parent`); empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return "" if node.value.id in MODULES else f"{node.value.id}.{node.attr}"
    return ""


def is_call(node: ast.AST | None, *wanted: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and called(node) in wanted


def method_owner(node: ast.AST, *methods: str) -> ast.expr | None:
    """`xs` of `xs.append(x)`, for a call of one of these methods; None for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        return node.func.value
    return None


def stored_value(stmt: ast.AST, store: ast.AST) -> ast.expr | None:
    """The value that a statement stores at a place of it."""
    if isinstance(store, ast.Call):
        return store.args[0] if store.args else None
    return stmt.value if isinstance(stmt, (ast.Assign, ast.AugAssign)) else None


def pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Targets with values: `a, b = b, a` has two, `a = b = 0` counts its first."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def assigned(nodes: Iterable[ast.AST]) -> list[tuple[ast.expr, ast.expr]]:
    """The `pairs` of all assignments among some nodes."""
    return [pair for node in nodes if isinstance(node, ast.Assign) for pair in pairs(node)]


def indices(node: ast.expr) -> list[ast.expr]:
    """Indices of `t[i][j]`, first to last."""
    found: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        found.insert(0, node.slice)
        node = node.value
    return found


def is_number(node: ast.AST | None, value: int) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == value


def is_op(node: ast.AST | None, *wanted: type[ast.operator]) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, wanted)


def halved(node: ast.AST | None, *division: type[ast.operator]) -> ast.expr | None:
    """`x` of `x // 2`, of `x >> 1`, and of `x / 2` where `ast.Div` is asked for; None for anything else."""
    if not is_op(node, ast.FloorDiv, ast.RShift, *division):
        return None
    return node.left if is_number(node.right, 1 if isinstance(node.op, ast.RShift) else 2) else None


def is_inverted(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)


def is_last(node: ast.AST | None) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and is_number(node.operand, 1)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _without_last(node: ast.expr) -> str:
    # `s` of `s[:-1]`
    if isinstance(node, ast.Subscript) and isinstance(cut := node.slice, ast.Slice) and not cut.lower:
        return key(node.value) if is_last(cut.upper) else ""
    return ""


def _iterated(node: ast.expr) -> set[str]:
    # containers whose items a loop goes over: directly, by enumerate, zip, items(), list() or a copy
    if name := key(node):
        return {name}
    if isinstance(node, ast.Call) and key(node.func) not in ("range", "len"):
        inner = {n for arg in node.args for n in _iterated(arg)}
        if isinstance(node.func, ast.Attribute):
            inner |= _iterated(node.func.value)
        return inner
    return _iterated(node.value) if isinstance(node, (ast.Subscript, ast.Starred)) else set()


def walk(node: ast.AST) -> list[ast.AST]:
    """Nodes level by level, without handlers: they tell what is done where an idea fails."""
    found: list[ast.AST] | None = node.__dict__.get("walked")
    if found is None:
        found = [node]
        for part in found:
            found.extend([below for below in children(part) if type(below) is not ast.ExceptHandler])
        node.__dict__["walked"] = found
    return found


def spelled(node: ast.AST) -> Hashable:
    """Shared by two pieces of code iff they are alike, apart from being read or stored."""
    found: Hashable | None = node.__dict__.get("spelled")
    if found is None:
        fields = (getattr(node, name, None) for name in node._fields if name != "ctx")
        parts = [_spelled_field(value) for value in fields]
        found = node.__dict__["spelled"] = (type(node).__name__, *parts)
    return found


def _spelled_field(value: object) -> Hashable:
    if isinstance(value, ast.AST):
        return spelled(value)
    return tuple(map(_spelled_field, value)) if isinstance(value, list) else (type(value).__name__, repr(value))


def position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def names(node: ast.AST | None) -> set[str]:
    return set() if node is None else {part.id for part in walk(node) if isinstance(part, ast.Name)}


def nodes_in(body: Iterable[ast.AST]) -> list[ast.AST]:
    return [node for part in body for node in walk(part)]


def contains(node: ast.AST, wanted: set[int]) -> bool:
    return any(id(part) in wanted for part in walk(node))


def same(left: ast.AST, right: ast.AST) -> bool:
    """Whether two pieces of code are alike, apart from being read or stored."""
    return spelled(left) == spelled(right)
