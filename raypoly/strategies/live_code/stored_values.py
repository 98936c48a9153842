"""All that a program ever stores under a name, or in what the name holds, without order and scope.

    stored = StoredValues(nodes(ast.parse("n = 0\\nt = [n]\\nt.append(4)")))
    stored.given["n"], stored.given["t[]"]      ->  [<0>], [<n>, <4>]
    stored.unknown                              ->  cells that may hold anything else

A cell is a name, a name with `[]` (what it holds, however deep), or a function's with `()` (what it returns). Cells of
what has another name as well, is handed on, or is bound in ways that are not looked into, are unknown.
"""

from __future__ import annotations

import ast
from math import inf

from raypoly.strategies.live_code.bindings import nodes, root, stores
from raypoly.strategies.live_code.library_effects import CHANGES_FIRST, READ_ONLY_METHODS, READS_ONLY

Range = tuple[float, float]
"""The least and the greatest that a value can be."""
ANYTHING: Range = (-inf, inf)
COUNT: Range = (0, inf)
ITEMS = "[]"
RESULT = "()"
# methods that put a value in, and the argument that it is
_ADDS = {"append": 0, "appendleft": 0, "add": 0, "insert": 1, "setdefault": 1}
_KEEPS = frozenset({"pop", "popleft", "popitem", "remove", "discard", "clear", "sort", "reverse", "rotate"})
_VIEWS = frozenset({"list", "tuple", "sorted", "reversed", "set", "iter", "deque"})


class StoredValues:
    """Of one tree, before it is changed."""

    def __init__(self, every: list[ast.AST], entry: str = "") -> None:
        """What the `entry` function gives is the answer, and is not reasoned about."""
        self.given: dict[str, list[ast.expr | Range]] = {}
        self.unknown: set[str] = set()
        self.ordered: set[tuple[str, str]] = set()
        """Names of which a loop says that the first is no greater than the second."""
        # names, by identity, where they are read in a way that gives their object no other name
        self._kept: set[int] = set()
        self._changed: set[str] = set()
        # names whose objects' parts may be what other names stand for
        self._views: list[tuple[str, set[str]]] = []
        loads: list[ast.Name] = []
        for node in every:
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    loads.append(node)
            else:
                self._read(node)
        asked = {
            n.id for loop in every if isinstance(loop, ast.While) for n in nodes(loop.test) if isinstance(n, ast.Name)
        }
        # what a loop asks is meant to move, even where its step was forgotten
        self.unknown |= {n for n in asked if all(isinstance(v, ast.Constant) for v in self.given.get(n, []))}
        self.unknown.add(entry + RESULT)
        self.unknown |= {name.id + ITEMS for name in loads if id(name) not in self._kept}
        self.unknown |= {name + ITEMS for name, targets in self._views if targets & self._changed}

    def _give(self, cell: str, value: ast.expr | Range) -> None:
        self.given.setdefault(cell, []).append(value)

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
            self._views += [(name, stores(node.targets)) for name in _iterated(node.value)]
        elif isinstance(node, ast.AugAssign):
            read = ast.Name(node.target.id, ast.Load()) if isinstance(node.target, ast.Name) else node.target
            self._bind(node.target, ast.BinOp(read, node.op, node.value))
        elif isinstance(node, ast.NamedExpr):
            self._bind(node.target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._iterate(node.target, node.iter)
            self._kept.add(id(node.iter))
            self._views += [(name, stores([node.target])) for name in _iterated(node.iter)]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._returns(node)
        elif isinstance(node, (ast.arg, ast.Global, ast.Nonlocal, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            names = [node.arg] if isinstance(node, ast.arg) else getattr(node, "names", [getattr(node, "name", "")])
            if not isinstance(node, (ast.Global, ast.Nonlocal)):
                self.unknown |= {part for name in names if name for part in (name, name + ITEMS)}
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._forget(node.optional_vars)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.unknown |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Subscript):
            self._kept.add(id(node.value))
            if not isinstance(node.ctx, ast.Load):
                self._changed.add(root(node) or "")
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, (ast.Compare, ast.If, ast.While)):
            self._kept.update(map(id, node.comparators if isinstance(node, ast.Compare) else [node.test]))
            if isinstance(node, ast.While):
                self.ordered |= _orders(node.test)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._give(target.id, value)
            self._hold(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if len(values) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in (*values, *target.elts)):
                for one, its in zip(target.elts, values, strict=True):
                    self._bind(one, its)
            else:
                self._forget(target)
        elif isinstance(target, ast.Subscript) and (name := root(target)):
            if isinstance(target.slice, ast.Slice) or isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.Dict)):
                self._hold(name, value)
            else:
                self._give(name + ITEMS, value)
        else:
            self._forget(target)

    def _forget(self, target: ast.expr) -> None:
        self.unknown |= {part for name in stores([target]) for part in (name, name + ITEMS)}
        self.unknown |= {f"{root(n)}{ITEMS}" for n in ast.walk(target) if isinstance(n, ast.Subscript)}

    def _hold(self, name: str, value: ast.expr) -> None:
        # what the value holds is now among what the name's object holds
        cell = name + ITEMS
        if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
            for item in value.elts:
                if _is_list(item) or isinstance(item, (ast.Tuple, ast.Set)):
                    self._hold(name, item)
                else:
                    self._give(cell, item)
        elif isinstance(value, ast.Dict):
            for item in value.values:
                self._give(cell, item)
        elif isinstance(value, (ast.ListComp, ast.SetComp)):
            self._hold(name, ast.List([value.elt], ast.Load()))
        elif isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Add)):
            sides = [side for side in (value.left, value.right) if _is_list(side)]
            for side in sides:
                self._hold(name, side)
            if not sides or (isinstance(value.op, ast.Add) and len(sides) < 2):
                self.unknown.add(cell)
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "range":
            self._give(cell, self._of_range(value))
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "defaultdict":
            plain = value.args and isinstance(value.args[0], ast.Name) and value.args[0].id == "int"
            self._give(cell, (0, 0)) if plain else self.unknown.add(cell)
        elif not (isinstance(value, ast.Call) and getattr(value.func, "id", "") in _VIEWS and not value.args):
            self.unknown.add(cell)

    def _iterate(self, target: ast.expr, source: ast.expr) -> None:
        by = source.func.id if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) else ""
        pair = by == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2
        first = target.elts[0] if pair and isinstance(target, ast.Tuple) else target
        plain = isinstance(source, ast.Call) and not source.keywords and (by == "range" or len(source.args) == 1)
        if not plain or not isinstance(first, ast.Name) or not (pair or by == "range"):
            self._forget(target)
            return
        assert isinstance(source, ast.Call)
        self.unknown.add(first.id + ITEMS)
        self._give(first.id, COUNT if pair else self._of_range(source))
        if pair and isinstance(target, ast.Tuple):
            self._forget(target.elts[1])

    def _of_range(self, call: ast.Call) -> ast.expr | Range:
        # what a `range` goes over: from its start on, as far as its step goes up
        first: ast.expr = call.args[0] if len(call.args) > 1 else ast.Constant(0)
        step = call.args[2] if len(call.args) > 2 else ast.Constant(1)
        up = isinstance(step, ast.Constant) and isinstance(step.value, int) and step.value > 0
        if not up or not call.args:
            return ANYTHING
        return ast.Call(ast.Name("max", ast.Load()), [first, ast.Constant(inf)], [])  # wherever it ends

    def _returns(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.unknown |= {function.name, function.name + ITEMS}
        inner = [n for stmt in function.body for n in ast.walk(stmt)]
        nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Yield, ast.YieldFrom)
        last = function.body[-1]
        plain = not function.decorator_list and isinstance(last, ast.Return)
        if not plain or any(isinstance(n, nested) or (isinstance(n, ast.Return) and not n.value) for n in inner):
            self.unknown.add(function.name + RESULT)
        for node in inner:
            if isinstance(node, ast.Return) and node.value is not None:
                self._give(function.name + RESULT, node.value)

    def _call(self, call: ast.Call) -> None:
        if isinstance(call.func, ast.Attribute):
            name, method = root(call.func.value), call.func.attr
            if method in _ADDS and len(call.args) > _ADDS[method]:
                value = call.args[_ADDS[method]]
                self._give(f"{name}{ITEMS}", value)
                self._hold_inside(f"{name}", value)
            elif method not in _KEEPS and method not in READ_ONLY_METHODS:
                return
            self._kept.add(id(call.func.value))
            if method not in READ_ONLY_METHODS:
                self._changed.add(name or "")
                self.unknown |= {f"{root(arg)}{ITEMS}" for arg in call.args if isinstance(arg, ast.Subscript)}
        elif isinstance(call.func, ast.Name):
            self._kept.add(id(call.func))
            if call.func.id in READS_ONLY:
                self._kept.update(map(id, call.args))
            elif call.func.id in CHANGES_FIRST and call.args:
                self._kept.add(id(call.args[0]))
                self._changed.add(root(call.args[0]) or "")
                for value in call.args[1:]:
                    self._give(f"{root(call.args[0])}{ITEMS}", value)

    def _hold_inside(self, name: str, value: ast.expr) -> None:
        # A container that is put into another: what it holds is held there too
        if isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.Set)):
            self._hold(name, value)


def _is_list(node: ast.expr) -> bool:
    # whether an expression is a list written out, or lists joined or repeated
    if isinstance(node, ast.BinOp):
        return _is_list(node.left) or _is_list(node.right)
    return isinstance(node, (ast.List, ast.ListComp))


def _iterated(source: ast.expr) -> set[str]:
    # names of containers that a value is made of, or that are gone over
    if isinstance(source, ast.Call):
        return set().union(*map(_iterated, source.args))
    if isinstance(source, (ast.ListComp, ast.GeneratorExp)):
        return set().union(*(_iterated(generator.iter) for generator in source.generators))
    name = root(source) if isinstance(source, (ast.Name, ast.Subscript)) else None
    return {name} if name else set()


def _orders(test: ast.expr) -> set[tuple[str, str]]:
    # pairs of names of which a loop's test says that one is no greater than the other
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return set().union(*map(_orders, test.values))
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return set()
    left, right = test.left, test.comparators[0]
    if not isinstance(left, ast.Name) or not isinstance(right, ast.Name):
        return set()
    if isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return {(left.id, right.id)}
    return {(right.id, left.id)} if isinstance(test.ops[0], (ast.Gt, ast.GtE)) else set()
