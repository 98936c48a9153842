"""Backtracking: what is done before a recursive call is taken back after it, or paths grow as arguments.

Standard library only.
"""

from __future__ import annotations

import ast

from raypoly.strategies.features.scene import contains


def undoes(inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    """Something is done before a recursive call and taken back after it."""
    ids = {id(call) for call in calls}
    for owner in inner:
        for part in ("body", "orelse"):
            body = getattr(owner, part, None)
            if not isinstance(body, list):
                continue
            at = [i for i, stmt in enumerate(body) if contains(stmt, ids)]
            undone = at and any(_opposite(before, after) for before in body[: at[-1]] for after in body[at[0] + 1 :])
            if undone and not any(_finishes(stmt, body[: at[-1]]) for stmt in body[at[0] + 1 :]):
                return True
    return False


def _finishes(stmt: ast.stmt, before: list[ast.stmt]) -> bool:
    """Whether a statement marks for good: a second state that is no return to the first, or a set of finished ones."""
    marked = {text for earlier in before for how, text in _effects(earlier) if how in ("add", "store")}
    for node in ast.walk(stmt):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add":
            return ast.dump(node.func.value) not in marked
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            state = node.value
            if _plain(node.targets[0]) not in marked:
                return isinstance(state, (ast.Constant, ast.List))
            return isinstance(state, ast.Constant) and type(state.value) is int and state.value > 0
    return False


def _opposite(before: ast.stmt, after: ast.stmt) -> bool:
    done, undone = _effects(before), _effects(after)
    pairs = {
        "append": {"pop"},
        "add": {"remove", "discard"},
        "store": {"store", "pop"},
        "add_to": {"add_to"},
        "swap": {"swap"},
    }
    return any(target == other and what in pairs.get(how, set()) for how, target in done for what, other in undone)


def _effects(stmt: ast.stmt) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for node in ast.walk(stmt):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.add((node.func.attr, ast.dump(node.func.value)))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            found.add(("add_to", _plain(node.target)))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                found |= {("store", _plain(part)) for part in parts if isinstance(part, ast.Subscript)}
    return found


def _plain(node: ast.AST) -> str:
    return ast.dump(node).replace("Store()", "Load()")


def collects(inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    """The path so far goes down as an argument and whole paths are collected."""
    grows = any(
        isinstance(arg, ast.BinOp)
        and isinstance(arg.op, ast.Add)
        and (_is_text(arg.right) or isinstance(arg.right, (ast.List, ast.Subscript, ast.Name)))
        and (isinstance(arg.right, ast.List) or not isinstance(arg.left, ast.Constant))
        for call in calls
        for arg in call.args
    )
    kept = any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "append" for n in inner)
    return grows and kept


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
