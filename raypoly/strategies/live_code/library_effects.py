"""Say what library calls change, in forms that the slicer already understands.

    tree = neutralize_library_calls(fold(ast.parse(source)))   # `heappush(h, x)` is a store into `h` now,
    live = restore_library_calls(slice_to(tree, "f"))          # `sorted(xs)` shares nothing with `xs`

The slicer keeps a call that might change what it is given. On real programs that keeps decoys alive: a heap that
nobody reads is filled with elements of the input. So before slicing, known library calls are written as stores, method
calls or fresh values, and afterwards `restore_library_calls` writes them back.
"""

from __future__ import annotations

import ast

from raypoly.strategies.live_code.bindings import transformed

_MARK = "@"
_FILLS = frozenset({"append", "appendleft", "add", "extend", "extendleft", "insert", "update", "remove", "discard"})
"""Methods that change their owner alone and whose result nobody reads."""
_FIRST = frozenset({"heappush", "heappop", "heapify", "heapreplace", "heappushpop", "insort", "insort_left", "shuffle"})
"""Functions that change their first argument alone."""
_READER_NAMES = """
    bisect bisect_left bisect_right nlargest nsmallest merge deepcopy copy groupby pairwise zip_longest fsum product
    accumulate starmap cache lru_cache cmp_to_key itemgetter attrgetter defaultdict OrderedDict prod
"""
_READERS = frozenset(_READER_NAMES.split())
_MODULES = frozenset({"heapq", "bisect", "copy", "random", "collections", "itertools", "functools", "math", "operator"})
_FRESH_NAMES = "sorted list set dict deque Counter tuple frozenset defaultdict str min max ord"
_FRESH = frozenset(_FRESH_NAMES.split())
"""What gives a new object each time."""


def neutralize_library_calls(tree: ast.Module) -> ast.Module:
    """The tree (changed in place) with library calls in forms that say what they change."""
    own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return transformed(_Neutral(frozenset(own)), tree)


def restore_library_calls(tree: ast.Module) -> ast.Module:
    """The inverse of `neutralize_library_calls` on whatever the slicer kept; the tree is changed in place."""
    return ast.fix_missing_locations(transformed(_Restore(), tree))


def library_name(call: ast.Call) -> str:
    """`heappush` of `heappush(...)` and of `heapq.heappush(...)`; empty for methods of anything but a module."""
    if isinstance(call.func, ast.Name):
        return call.func.id
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(call.func, ast.Attribute) and isinstance(owner, ast.Name) and owner.id in _MODULES:
        return call.func.attr
    return ""


class _Neutral(ast.NodeTransformer):
    def __init__(self, own: frozenset[str]) -> None:
        self.own = own
        self.flags = 0

    def library(self, call: ast.Call) -> str:
        """The library function that is called; empty where the program has a function of that name."""
        name = library_name(call)
        return "" if name in self.own else name

    def _loop(self, node: ast.For | ast.While) -> ast.AST | list[ast.stmt]:
        """An `else` of a loop that can break is said by a flag, so that the break is seen to matter."""
        self.generic_visit(node)
        if not node.orelse or not any(isinstance(n, ast.Break) for n in ast.walk(node)):
            return node
        self.flags += 1
        name = f"left_early_{self.flags}"
        orelse, node.orelse = node.orelse, []
        _Flagging(name).visit(node)
        before = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(False))
        asks = ast.UnaryOp(ast.Not(), ast.Name(name, ast.Load()))
        return [ast.copy_location(before, node), node, ast.copy_location(ast.If(asks, orelse, []), node)]

    visit_For = visit_While = _loop

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        self.generic_visit(call)
        if not isinstance(call, ast.Call) or call.keywords:
            return node
        target: ast.expr | None = None
        if isinstance(call.func, ast.Attribute) and call.func.attr in _FILLS and self.library(call) == "":
            target, name, rest = call.func.value, call.func.attr, call.args
        elif self.library(call) in _FIRST and call.args:
            target, name, rest = call.args[0], self.library(call), call.args[1:]
        if target is None:
            node.value = self.visit_Call(call, inside=False)
            return node
        place = ast.Subscript(target, ast.Constant(_MARK + name), ast.Store())
        return ast.copy_location(ast.Assign([place], ast.Tuple(rest, ast.Load())), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if self._is_fresh(node.value):
            node.value = ast.copy_location(ast.BinOp(node.value, ast.Mod(), ast.Constant(_MARK)), node.value)
        return node

    def visit_Call(self, node: ast.Call, inside: bool = True) -> ast.expr:
        if inside:
            self.generic_visit(node)
        name = self.library(node)
        if name in _FIRST and node.args and isinstance(node.args[0], (ast.Name, ast.Attribute)):
            method = ast.Attribute(node.args[0], _MARK + name, ast.Load())
            return ast.copy_location(ast.Call(method, node.args[1:], node.keywords), node)
        if name in _READERS:
            return ast.copy_location(
                ast.Call(ast.Name("min", ast.Load()), [ast.Constant(_MARK + name), *node.args], node.keywords), node
            )
        return node

    def _is_fresh(self, node: ast.expr) -> bool:
        """Whether a value is a new object, made of another's items."""
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return True
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr == "copy" and not node.args:
            return True
        return self.library(node) in _FRESH or bool(node.args and _marked(node.args[0]))


class _Flagging(ast.NodeTransformer):
    """Sets a flag before each `break` of one loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.depth = 0

    def _nested(self, node: ast.For | ast.While) -> ast.AST:
        if self.depth == 0:
            self.depth += 1
            self.generic_visit(node)
            self.depth -= 1
        return node

    visit_For = visit_While = _nested

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        flag = ast.Assign([ast.Name(self.name, ast.Store())], ast.Constant(True))
        return [ast.copy_location(flag, node), node]


class _Restore(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and (name := _marked(target.slice)) and isinstance(node.value, ast.Tuple):
            rest = node.value.elts
            if name in _FIRST:
                call = ast.Call(ast.Name(name, ast.Load()), [target.value, *rest], [])
            else:
                call = ast.Call(ast.Attribute(target.value, name, ast.Load()), rest, [])
            return ast.copy_location(ast.Expr(call), node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        fresh = isinstance(node.op, ast.Mod) and isinstance(node.right, ast.Constant) and node.right.value == _MARK
        return node.left if fresh else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr.startswith(_MARK):
            name = ast.Name(node.func.attr[len(_MARK) :], ast.Load())
            return ast.copy_location(ast.Call(name, [node.func.value, *node.args], node.keywords), node)
        if node.args and (name_of := _marked(node.args[0])):
            return ast.copy_location(ast.Call(ast.Name(name_of, ast.Load()), node.args[1:], node.keywords), node)
        return node


def _marked(node: ast.AST) -> str:
    value = node.value if isinstance(node, ast.Constant) else None
    return value[len(_MARK) :] if isinstance(value, str) and value.startswith(_MARK) and len(value) > 1 else ""
