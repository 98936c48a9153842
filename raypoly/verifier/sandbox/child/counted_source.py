"""Write calls into a program's source that count what it does, so that counts are the same under every Python.

    counted("def f(n):\\n s = 0\\n for i in range(n): s += i\\n return s")
    ->  def f(n):
            @enter(False)
            try:
                @line()
                s = 0
                for i in range(n):
                    @line()
                    @line()
                    s += i
                else:
                    @line()
                @line()
                return s
            finally:
                @leave()

The names are no identifiers, so no program has them (`budget.py` puts them among the builtins). A loop's head is a
statement that begins once an item, and once when the items end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

HOOKS = """
    line again enter leave returned paused resumed delegates delegated items more element made tail
"""
"""What is called, by its name without the "@"."""
# builtins that change nothing
_PLAIN = "abs all any bool divmod int isinstance len max min pow range round set sorted str sum tuple"
_AT: Any = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COLLECTED = (ast.ListComp, ast.SetComp, ast.DictComp)
_NESTED = (ast.Lambda, ast.GeneratorExp, *_COLLECTED)
_SILENT = (ast.Global, ast.Nonlocal, ast.For, ast.AsyncFor)
"""Statements that do nothing, or whose heads count."""


def counted(source: str, filename: str = "<candidate>", says_end: bool = True) -> ast.Module:
    """`says_end`: functions say when they end, which takes one of the 20 blocks that may be nested.

    Raises what `ast.parse` raises.
    """
    tree = ast.parse(source, filename)
    # iterative, since a hostile tree may be deeper than the stack: each node with its function or class
    order: list[tuple[Any, ast.AST]] = []
    todo: list[tuple[Any, ast.AST]] = [(tree, tree)]
    generators = set[int]()
    while todo:
        node, scope = todo.pop()
        order.append((node, scope))
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            generators.add(id(scope))
        own = {id(part) for part in _own_parts(node)}
        todo += [(child, node if id(child) in own else scope) for child in ast.iter_child_nodes(node)]
    new: dict[int, ast.AST] = {}
    numbers = count()
    for node, scope in reversed(order):
        _replace_children(node, new)
        _count_statements(node, scope, numbers)
        if isinstance(node, _SCOPES):
            _count_frame(node, id(node) in generators, says_end)
        elif isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.GeneratorExp, *_COLLECTED)):
            new[id(node)] = _counted_expression(node)
    return tree


def _own_parts(node: Any) -> Sequence[ast.AST]:
    if not isinstance(node, _SCOPES):
        return []
    return [node.body] if isinstance(node, ast.Lambda) else list[ast.AST](node.body)


def _replace_children(node: ast.AST, new: dict[int, ast.AST]) -> None:
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            value[:] = [new.pop(id(item), item) for item in value]
        elif id(value) in new:
            setattr(node, name, new.pop(id(value)))


def _count_statements(node: Any, scope: ast.AST, numbers: Iterator[int]) -> None:
    inner = node if isinstance(node, _SCOPES) else scope
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            body[:] = _each_counted(body, node, inner, numbers)
    number = next(numbers)
    if isinstance(node, (ast.For, ast.AsyncFor)):
        node.body.insert(0, _begun(scope, number))
        node.orelse.insert(0, _begun(scope, number))
    elif _has_test(node):
        node.test = ast.BoolOp(ast.And(), [_begun(scope, number).value, node.test], **_AT)
    elif isinstance(node, ast.ExceptHandler) and node.type is not None:
        node.type = ast.BoolOp(ast.And(), [_begun(scope, number).value, node.type], **_AT)
    elif isinstance(node, ast.ExceptHandler):
        node.body.insert(0, _begun(scope, number))
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        node.body.append(_begun(scope, number))
    elif isinstance(node, ast.Match):
        if node.cases[-1].guard is not None or not _takes_all(node.cases[-1].pattern):
            node.cases.append(ast.match_case(ast.MatchAs(None, None, **_AT), None, [ast.Pass(**_AT)]))
        for tried, case in enumerate(node.cases, 1):
            case.body[:0] = [_begun(scope, number) for _ in range(tried)]


def _each_counted(body: list[Any], node: ast.AST, scope: ast.AST, numbers: Iterator[int]) -> Iterable[ast.stmt]:
    for place, stmt in enumerate(body):
        is_text = place == 0 and _is_docstring(stmt, node)
        is_future = isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"
        if not (is_text or is_future or isinstance(stmt, _SILENT) or _has_test(stmt)):
            yield _begun(scope, next(numbers))
        yield stmt


def _has_test(node: ast.AST) -> bool:
    # of `while True`, nothing is evaluated again
    return isinstance(node, ast.While) and not (isinstance(node.test, ast.Constant) and bool(node.test.value))


def _is_docstring(stmt: ast.stmt, owner: ast.AST) -> bool:
    text = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str)
    return text and isinstance(owner, (ast.Module, *_SCOPES))


def _takes_all(pattern: ast.pattern) -> bool:
    if isinstance(pattern, ast.MatchOr):
        return _takes_all(pattern.patterns[-1])
    return isinstance(pattern, ast.MatchAs) and (pattern.pattern is None or _takes_all(pattern.pattern))


def _count_frame(node: Any, generator: bool, says_end: bool) -> None:
    enter = _call("enter", ast.Constant(generator, **_AT))
    if isinstance(node, ast.Lambda):
        node.body = _call("returned", enter, node.body)
        return
    begin = 1 if _is_docstring(node.body[0], node) else 0
    body = node.body[begin:] or [ast.Pass(**_AT)]
    whole = [ast.Try(body, [], [], [ast.Expr(_call("leave"), **_AT)], **_AT)] if says_end else body
    head: list[ast.stmt] = [ast.Expr(enter, **_AT)]
    if isinstance(node, ast.ClassDef):  # else its namespace, which may be of the program's making, would be asked first
        head = [ast.Global([f"@{name}" for name in HOOKS.split()], **_AT), *head, _begun(node, 0)]
    node.body[begin:] = [*head, *whole]


def _counted_expression(node: Any) -> ast.expr:
    if isinstance(node, ast.Yield):
        node.value = _call("paused", node.value or ast.Constant(None, **_AT))
        return _call("resumed", node)
    if isinstance(node, (ast.YieldFrom, ast.Await)):
        node.value = _call("delegates", node.value)
        return _call("delegated", node)
    loops, begins = [part for part in node.generators if not part.is_async], not node.generators[0].is_async
    assigns = ast.Constant(_assigns(node), **_AT)
    if not isinstance(node, ast.GeneratorExp):
        for part in loops:
            first = begins and part is loops[0]
            part.iter = _call("items" if first else "more", part.iter, assigns)
        return _call("made", node)
    acts = _acts(node)
    for part in loops if acts else ():
        part.iter = _call("more", part.iter, ast.Constant(True, **_AT))
    if begins:
        node.generators[0].iter = _call("tail", node.generators[0].iter)
    if not acts or not loops:
        node.elt = _call("element", node.elt)
    return node


def _acts(node: ast.GeneratorExp) -> bool:
    """Whether items that a generator expression does not give may do something: then each that it looks at counts."""
    parts = [part for loop in node.generators for part in (loop.iter, *loop.ifs)][1:]
    calls = [call for part in parts for call in ast.walk(part) if isinstance(call, ast.Call)]
    return bool(parts) and (_assigns(node) or not all(_is_plain(call.func) for call in calls))


def _is_plain(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and (function.id in _PLAIN.split() or function.id[:1] == "@")


def _assigns(node: Any) -> bool:
    """Whether a comprehension binds anything but names of its own that only it sees."""
    first = node.generators[0].iter
    todo = [part for part in ast.iter_child_nodes(node) if part is not first]
    bound, seen_by_others = set[str](), set[str]()
    while todo:
        part = todo.pop()
        if isinstance(part, ast.NamedExpr):
            return True
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, ast.Store):
            return True
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            bound.add(part.id)
        if isinstance(part, _NESTED):
            # what it begins with, its own scope doesn't see
            outside = [part.args] if isinstance(part, ast.Lambda) else [part.generators[0].iter]
            seen_by_others |= _names(part, outside)
            todo += outside
            continue
        todo += [child for child in ast.iter_child_nodes(part) if child is not first]
    return not bound.isdisjoint(seen_by_others)


def _names(node: ast.AST, outside: Sequence[ast.AST]) -> set[str]:
    found, todo = set[str](), [node]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Name):
            found.add(part.id)
        todo += [child for child in ast.iter_child_nodes(part) if child not in outside]
    return found


def _begun(scope: ast.AST, number: int) -> ast.Expr:
    # at module level a statement counts when it begins again
    again = isinstance(scope, ast.Module)
    return ast.Expr(_call("again", ast.Constant(number, **_AT)) if again else _call("line"), **_AT)


def _call(name: str, *args: Any) -> ast.Call:
    return ast.Call(ast.Name(f"@{name}", ast.Load(), **_AT), list(args), [], **_AT)
