"""Search by recursion: backtracking, and whether the search is pruned.

Backtracking takes back after a recursive call what it did before it, or hands down a path that grows. Pruned search
tests what stands so far before each step; generate-and-test makes whole candidates first.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable
from itertools import pairwise

from raypoly.strategies.features.scene import (
    ORDER,
    Scene,
    contains,
    is_call,
    is_inverted,
    is_op,
    is_text,
    key,
    method_owner,
    names,
    spelled,
    walk,
)

_UNDONE_BY = {
    "append": {"pop"},
    "add": {"remove", "discard"},
    "store": {"store", "pop"},
    "add_to": {"add_to"},
    "swap": {"swap"},
}


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
    # whether a statement marks for good: a second state that is no return to the first, or a set of finished ones
    marked = {text for earlier in before for how, text in _effects(earlier) if how in ("add", "store")}
    for node in walk(stmt):
        if owner := method_owner(node, "add"):
            return spelled(owner) not in marked
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            state = node.value
            if spelled(node.targets[0]) not in marked:
                return isinstance(state, (ast.Constant, ast.List))
            return isinstance(state, ast.Constant) and type(state.value) is int and state.value > 0
    return False


def _opposite(before: ast.stmt, after: ast.stmt) -> bool:
    done, undone = _effects(before), _effects(after)
    return any(target == other and what in _UNDONE_BY.get(how, ()) for how, target in done for what, other in undone)


def _effects(stmt: ast.stmt) -> set[tuple[str, Hashable]]:
    found: set[tuple[str, Hashable]] = set()
    for node in walk(stmt):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.add((node.func.attr, spelled(node.func.value)))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            found.add(("add_to", spelled(node.target)))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                found |= {("store", spelled(part)) for part in parts if isinstance(part, ast.Subscript)}
    return found


def collects(inner: list[ast.AST], calls: list[ast.Call]) -> bool:
    """The path so far goes down as an argument and whole paths are collected."""
    longer = [arg for call in calls for arg in call.args if is_op(arg, ast.Add)]
    items = [arg.right for arg in longer if not isinstance(arg.left, ast.Constant)]
    grows = any(isinstance(arg.right, ast.List) for arg in longer)
    grows |= any(is_text(item) or isinstance(item, (ast.Subscript, ast.Name)) for item in items)
    return grows and any(method_owner(n, "append") for n in inner)


def pruned(scene: Scene, function: ast.AST, calls: list[ast.Call], builds: bool) -> bool:
    """Whether all recursive calls are guarded. `builds`: it makes candidates, so a comparison is a guard too."""
    if not calls:
        return False
    if builds and any(_turns_back(stmt) for stmt in getattr(function, "body", [])):
        return True
    return all(any(_guards(scene, test, builds) for test in _tests_before(scene, call)) for call in calls)


def _tests_before(scene: Scene, call: ast.Call) -> list[ast.expr]:
    # tests that decide whether the call is made, innermost first
    found: list[ast.expr] = []
    for below, at in pairwise([call, *scene.around(call)]):
        if isinstance(at, ast.If) and below is not at.test:
            found.append(at.test)
        if isinstance(at, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            found += [test for generator in at.generators for test in generator.ifs]
        if isinstance(at, ast.For):
            skips = [s for s in at.body if isinstance(s, ast.If) and isinstance(s.body[-1], (ast.Continue, ast.Break))]
            found += [skip.test for skip in skips]
        if isinstance(at, ast.While):
            found += [value for name in sorted(names(at.test)) for value in scene.made.get(name, [])]
    return found


def _guards(scene: Scene, test: ast.expr, builds: bool) -> bool:
    # A test of a conflict: by a helper, by several lookups, by masked bits; for builders by order, too
    parts = walk(test)
    if any(isinstance(n, (ast.GeneratorExp, ast.ListComp)) or is_inverted(n) for n in parts):
        return True
    if any(is_call(n, *(scene.functions.keys() - scene.recursive)) for n in parts):
        return True
    compared = [n for n in parts if isinstance(n, ast.Compare)]
    places = [n for n in parts if isinstance(n, ast.Subscript)]
    looked_up = [n for n in places if not isinstance(scene.parent.get(id(n)), ast.Compare)]
    if sum(isinstance(n.ops[0], (ast.In, ast.NotIn)) for n in compared) > 1 or len(looked_up) > 1:
        return True
    return builds and any(isinstance(n.ops[0], ORDER) for n in compared) and not _skips_twins(compared)


def _turns_back(stmt: ast.stmt) -> bool:
    # `if left > n or right > n or left < right: return`
    if not isinstance(stmt, ast.If) or not isinstance(stmt.test, ast.BoolOp) or not isinstance(stmt.test.op, ast.Or):
        return False
    tests = [n for n in stmt.test.values if isinstance(n, ast.Compare) and isinstance(n.ops[0], ORDER)]
    returns = len(stmt.body) == 1 and isinstance(stmt.body[0], ast.Return) and stmt.body[0].value is None
    return returns and len(tests) > 1 and any(key(n.left) and key(n.comparators[0]) for n in tests)


def _skips_twins(compared: list[ast.Compare]) -> bool:
    # `i > start and a[i] == a[i - 1]`: equal items are taken once; nothing is pruned
    return any(isinstance(n.left, ast.Subscript) and isinstance(n.comparators[0], ast.Subscript) for n in compared)
