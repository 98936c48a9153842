"""Search by recursion: backtracking, and whether the search is pruned.

Backtracking takes back after a recursive call what it did before it, or hands a path that grows down as an argument.
Pruned search takes each step only after a test of what stands so far; generate-and-test makes whole candidates first.
"""

from __future__ import annotations

import ast

from raypoly.strategies.features.scene import ORDER, Scene, contains, is_text, key, method_owner, names
from raypoly.strategies.live_code.constructs import called

_MEMBER = (ast.In, ast.NotIn)


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
        if owner := method_owner(node, "add"):
            return ast.dump(owner) not in marked
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
        and (is_text(arg.right) or isinstance(arg.right, (ast.List, ast.Subscript, ast.Name)))
        and (isinstance(arg.right, ast.List) or not isinstance(arg.left, ast.Constant))
        for call in calls
        for arg in call.args
    )
    return grows and any(method_owner(n, "append") for n in inner)


def pruned(scene: Scene, function: ast.AST, calls: list[ast.Call], builds: bool) -> bool:
    """Whether all recursive calls are guarded. `builds`: it makes candidates, so that a comparison is a guard too."""
    if not calls:
        return False
    if builds and any(_turns_back(stmt) for stmt in getattr(function, "body", [])):
        return True
    return all(any(_guards(scene, test, builds) for test in _tests_before(scene, call)) for call in calls)


def _tests_before(scene: Scene, call: ast.Call) -> list[ast.expr]:
    """Tests that decide whether the call is made, innermost first."""
    found: list[ast.expr] = []
    below: ast.AST = call
    for at in scene.around(call):
        if isinstance(at, ast.If) and below is not at.test:
            found.append(at.test)
        if isinstance(at, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            found += [test for generator in at.generators for test in generator.ifs]
        if isinstance(at, ast.For):
            skips = [s for s in at.body if isinstance(s, ast.If) and isinstance(s.body[-1], (ast.Continue, ast.Break))]
            found += [skip.test for skip in skips]
        if isinstance(at, ast.While):
            found += [value for name in sorted(names(at.test)) for value in scene.made.get(name, [])]
        below = at
    return found


def _guards(scene: Scene, test: ast.expr, builds: bool) -> bool:
    """A test of a conflict: by a helper, by several lookups, by masked bits; for builders by order, too."""
    parts = list(ast.walk(test))
    if any(isinstance(n, (ast.Invert, ast.GeneratorExp, ast.ListComp)) for n in parts):
        return True
    helpers = scene.functions.keys() - scene.recursive
    if any(isinstance(n, ast.Call) and called(n) in helpers for n in parts):
        return True
    compared = [n for n in parts if isinstance(n, ast.Compare)]
    looked_up = [
        n for n in parts if isinstance(n, ast.Subscript) and not isinstance(scene.parent.get(id(n)), ast.Compare)
    ]
    if len([n for n in compared if isinstance(n.ops[0], _MEMBER)]) > 1 or len(looked_up) > 1:
        return True
    return builds and any(isinstance(n.ops[0], ORDER) for n in compared) and not _skips_twins(compared)


def _skips_twins(compared: list[ast.Compare]) -> bool:
    """`i > start and a[i] == a[i - 1]`: equal items are taken once; nothing is pruned."""
    return any(isinstance(n.left, ast.Subscript) and isinstance(n.comparators[0], ast.Subscript) for n in compared)


def _turns_back(stmt: ast.stmt) -> bool:
    """`if left > n or right > n or left < right: return`."""
    if not isinstance(stmt, ast.If) or not isinstance(stmt.test, ast.BoolOp) or not isinstance(stmt.test.op, ast.Or):
        return False
    if len(stmt.body) != 1 or not isinstance(stmt.body[0], ast.Return) or stmt.body[0].value is not None:
        return False
    tests = [n for n in stmt.test.values if isinstance(n, ast.Compare) and isinstance(n.ops[0], ORDER)]
    return len(tests) > 1 and any(key(n.left) and key(n.comparators[0]) for n in tests)
