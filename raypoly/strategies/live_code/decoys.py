"""Take away what only feeds itself: a set that is filled and never asked, a heap that is pushed to and never popped.

    remove_decoys(tree, program, "f")   # tree of "def f(a):\\n seen = set()\\n for x in a:\\n  seen.add(x)\\n return a"

A local name is a decoy where nothing that stays reads it. A statement goes if it only binds decoys or changes objects
that decoys alone hold (made for them, never handed on). The largest such set is found by taking away names, one after
the other, that something else reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from raypoly.strategies.live_code.bindings import bound_here, children, declared, nodes, parameters, root
from raypoly.strategies.live_code.function_facts import Function, FunctionFacts
from raypoly.strategies.live_code.library_effects import (
    CHANGES_FIRST,
    CHANGING_METHODS,
    COPIES,
    PLAIN_RESULTS,
    changed_by,
)

# levels of a value that holds nothing from outside, however deep one looks
_DEEP = 9
# names fall in few rounds; where one draws the next after it for longer, none is taken for a decoy
_ROUNDS = 24
_JUMPS = (ast.Break, ast.Continue, ast.Pass)
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def remove_decoys(tree: ast.Module, program: FunctionFacts, entry: str) -> bool:
    """Whether anything was found; the tree is changed in place. `entry`: the entry function."""
    functions = [node for node in nodes(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return any([_clean(f, program) for f in functions if not program.forgot_to_answer(f, entry)])


def _clean(function: Function, program: FunctionFacts) -> bool:
    names = bound_here(function.body) - parameters(function.args) - declared(function.body)
    every = _inside(function.body)
    for node in every:
        if isinstance(node, (*_NESTED, ast.Lambda)):
            names -= {n.id for n in nodes(node) if isinstance(n, ast.Name)} | {getattr(node, "name", "")}
            names -= set().union(*(n.names for n in nodes(node) if isinstance(n, (ast.Global, ast.Nonlocal))), set())
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.ExceptHandler)):
            names -= bound_here([node])
    if not names:
        return False
    # Begin with all local names as decoys, and take away those that something which stays is found to read. Fewer
    # decoys let more statements stay, which may read more: until nothing changes.
    reader = _Reader(program, _depths(every, names, program.own), frozenset(names))
    for _ in range(_ROUNDS):
        read = reader.read(function.body) & reader.decoys
        if not read:
            break
        reader = _Reader(program, reader.depths, reader.decoys - read)
    if read or not reader.decoys:
        return False
    kept = reader.kept(function.body)
    changed = len(_inside(kept)) != len(every)
    function.body = kept or [ast.Pass()]
    return changed


@dataclass(frozen=True)
class _Reader:
    """What is dead if these names are decoys."""

    program: FunctionFacts
    depths: dict[str, int]
    """Levels of a name's objects that were made for it."""
    decoys: frozenset[str]

    def read(self, body: Sequence[ast.stmt]) -> frozenset[str]:
        """Names that statements which stay read."""
        stay = _inside(self.kept(body))
        grown = [n.target for n in stay if isinstance(n, ast.AugAssign)]
        loaded = [n for n in stay if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)]
        return frozenset(n.id for n in (*loaded, *grown) if isinstance(n, ast.Name))

    def kept(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Statements that do more than feed decoys, cleaned inside, in new nodes."""
        return [new for stmt in body if (new := self._statement(stmt)) is not None]

    def _statement(self, stmt: ast.stmt) -> ast.stmt | None:
        if isinstance(stmt, (ast.For, ast.While, ast.If)):
            return self._compound(stmt)
        if isinstance(stmt, (ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match, *_NESTED)):
            return stmt
        return None if self._dead(stmt) else stmt

    def _compound(self, stmt: ast.For | ast.While | ast.If) -> ast.stmt | None:
        body, orelse = self.kept(stmt.body), self.kept(stmt.orelse)
        head = stmt.iter if isinstance(stmt, ast.For) else stmt.test
        loop = not isinstance(stmt, ast.If)
        # a loop that only jumps does nothing, since whether it ends is no result; an `if` whose body jumps decides
        # something
        idle = not orelse and (all(isinstance(n, _JUMPS) for n in body) if loop else not body)
        # a loop also leaves its last item in its target
        binds = isinstance(stmt, ast.For) and not self._all_decoys(stmt.target)
        if idle and not binds and self._pure(head):
            return None
        if [*map(id, body), *map(id, orelse)] == [*map(id, stmt.body), *map(id, stmt.orelse)]:
            return stmt
        values = {name: getattr(stmt, name) for name in stmt._fields}
        new = type(stmt)(**{**values, "body": body or [ast.Pass()], "orelse": orelse})
        return ast.copy_location(new, stmt)

    def _dead(self, stmt: ast.stmt) -> bool:
        if isinstance(stmt, ast.Assign):
            return all(map(self._goes, stmt.targets)) and self._pure(stmt.value)
        if isinstance(stmt, ast.AugAssign):
            name = stmt.target.id if isinstance(stmt.target, ast.Name) else ""
            # `x += [1]` changes the object that `x` was bound to, so it must have been made for `x`
            fresh = not name or self.depths.get(name, 0) > 0
            return fresh and self._goes(stmt.target) and self._pure(stmt.value)
        if isinstance(stmt, ast.Delete):
            return all(isinstance(t, ast.Subscript) and self._goes(t) for t in stmt.targets)
        return isinstance(stmt, ast.Expr) and self._pure(stmt.value)

    def _goes(self, target: ast.expr) -> bool:
        # whether storing there touches decoys alone
        if isinstance(target, (ast.Tuple, ast.List)):
            return all(map(self._goes, target.elts))
        if isinstance(target, ast.Starred):
            return self._goes(target.value)
        if isinstance(target, ast.Subscript):
            return self._holds(target.value) and self._pure(target.slice)
        return isinstance(target, ast.Name) and target.id in self.decoys

    def _all_decoys(self, target: ast.expr) -> bool:
        return all(n.id in self.decoys for n in nodes(target) if isinstance(n, ast.Name)) and not any(
            isinstance(n, (ast.Subscript, ast.Attribute)) for n in nodes(target)
        )

    def _holds(self, node: ast.expr) -> bool:
        # whether this object is one that decoys alone hold
        level = 1
        while isinstance(node, ast.Subscript):
            if not self._pure(node.slice):
                return False
            node, level = node.value, level + 1
        return isinstance(node, ast.Name) and node.id in self.decoys and self.depths.get(node.id, 0) >= level

    def _pure(self, node: ast.AST) -> bool:
        # whether evaluating changes nothing that others hold
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            return False
        if isinstance(node, ast.Call) and not self._pure_call(node):
            return False
        return all(map(self._pure, children(node)))

    def _pure_call(self, call: ast.Call) -> bool:
        # what a function that is handed over does when it is called is not looked into
        if any(isinstance(n, ast.Name) and n.id in self.program.effectful for n in call.args):
            return False
        if isinstance(call.func, ast.Name) and call.func.id in self.program.free:
            return call.func.id not in self.program.effectful
        if self.program.prints and getattr(call.func, "id", "") in ("print", "exit"):
            return False
        changed = changed_by(call, self.program.own, self.program.functions)
        return changed is not None and all(map(self._holds, changed))


def _inside(body: Iterable[ast.AST]) -> list[ast.AST]:
    return [node for part in body for node in nodes(part)]


def _depths(every: list[ast.AST], names: set[str], own: frozenset[str]) -> dict[str, int]:
    # for each name how many levels of what it is bound to were made there: 1 for `[a]`, 2 for `[[a]]`
    depths = dict.fromkeys(names, _DEEP)
    simple: set[int] = set()
    for node in every:
        if isinstance(node, ast.Assign):
            level = _made(node.value, own)
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in depths:
                    depths[target.id] = min(depths[target.id], level)
                    simple.add(id(target))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in depths:
            added = _made(node.value, own)
            depths[node.target.id] = min(depths[node.target.id], max(1, added))
            simple.add(id(node.target))
    for node in every:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in simple:
            depths[node.id] = 0  # bound in a way that is not looked into
    for name, level, value in _stored(every):
        if name in depths:
            depths[name] = min(depths[name], level + _made(value, own))
    return depths


def _stored(every: list[ast.AST]) -> Iterator[tuple[str, int, ast.expr]]:
    # (name, level, value) of everything that is put into a container: level 1 for `a[i] = x`, 2 for `a[i][j] = x`
    for node in every:
        places: list[tuple[ast.AST, list[ast.expr]]] = []
        if isinstance(node, ast.Assign):
            places = [(t.value, [node.value]) for t in node.targets if isinstance(t, ast.Subscript)]
            tuples = [t for t in node.targets if isinstance(t, (ast.Tuple, ast.List))]
            inner = [n.value for t in tuples for n in nodes(t) if isinstance(n, ast.Subscript)]
            places += [(owner, [ast.Name("?", ast.Load())]) for owner in inner]
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            places = [(node.target.value, [node.value])]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_METHODS:
            places = [(node.func.value, node.args)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CHANGES_FIRST:
            places = [(arg, node.args[1:]) for arg in node.args[:1]]
        for owner, values in places:
            name, level = root(owner), 1
            while isinstance(owner, ast.Subscript):
                owner, level = owner.value, level + 1
            if name is not None:
                yield from ((name, level, value) for value in values)


def _made(node: ast.expr, own: frozenset[str]) -> int:
    # how many levels of this value are new objects, `_DEEP` where it holds nothing from elsewhere
    if isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr, ast.UnaryOp)):
        return _DEEP
    if isinstance(node, (ast.List, ast.Set, ast.Tuple)):
        return min([_DEEP, *(1 + _made(e, own) for e in node.elts)])
    if isinstance(node, ast.Dict):
        held = [1 + _made(e, own) for e in (*node.keys, *node.values) if e is not None]
        return min([1 if None in node.keys else _DEEP, *held])
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return min(_DEEP, 1 + _made(node.elt, own))
    if isinstance(node, ast.DictComp):
        return min(_DEEP, 1 + min(_made(node.key, own), _made(node.value, own)))
    if isinstance(node, ast.BinOp):
        lists = [n for n in (node.left, node.right) if isinstance(n, (ast.List, ast.ListComp, ast.BinOp, ast.Call))]
        return max(1, min((_made(n, own) for n in lists), default=1)) if isinstance(node.op, ast.Mult) else 1
    if isinstance(node, ast.IfExp):
        return min(_made(node.body, own), _made(node.orelse, own))
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return 1
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id in own:
        return 0
    name = node.func.id
    if name in PLAIN_RESULTS:
        return _DEEP
    if name == "defaultdict":
        known = len(node.args) == 1 and isinstance(node.args[0], ast.Name)
        return _DEEP if known and node.args[0].id in {*COPIES, *PLAIN_RESULTS} - own else 1  # type: ignore[attr-defined]
    return (1 if node.args else _DEEP) if name in COPIES else 0
