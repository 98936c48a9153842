"""Pruned search: every step of a recursion is taken only after a test of what stands so far.

Generate-and-test makes whole candidates first. Standard library only.
"""

from __future__ import annotations

import ast

from raypoly.strategies.features.scene import Scene, key, names
from raypoly.strategies.live_code.constructs import called

_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_MEMBER = (ast.In, ast.NotIn)


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
    if any(isinstance(n, ast.Invert) for n in parts) or any(
        isinstance(n, (ast.GeneratorExp, ast.ListComp)) for n in parts
    ):
        return True
    if any(
        isinstance(n, ast.Call) and called(n) in scene.functions and called(n) not in scene.recursive for n in parts
    ):
        return True
    compared = [n for n in parts if isinstance(n, ast.Compare)]
    looked_up = [
        n for n in parts if isinstance(n, ast.Subscript) and not isinstance(scene.parent.get(id(n)), ast.Compare)
    ]
    if len([n for n in compared if isinstance(n.ops[0], _MEMBER)]) > 1 or len(looked_up) > 1:
        return True
    return builds and any(isinstance(n.ops[0], _ORDER) for n in compared) and not _skips_twins(compared)


def _skips_twins(compared: list[ast.Compare]) -> bool:
    """`i > start and a[i] == a[i - 1]`: equal items are taken once; nothing is pruned."""
    return any(isinstance(n.left, ast.Subscript) and isinstance(n.comparators[0], ast.Subscript) for n in compared)


def _turns_back(stmt: ast.stmt) -> bool:
    """`if left > n or right > n or left < right: return`."""
    if not isinstance(stmt, ast.If) or not isinstance(stmt.test, ast.BoolOp) or not isinstance(stmt.test.op, ast.Or):
        return False
    if len(stmt.body) != 1 or not isinstance(stmt.body[0], ast.Return) or stmt.body[0].value is not None:
        return False
    tests = [n for n in stmt.test.values if isinstance(n, ast.Compare) and isinstance(n.ops[0], _ORDER)]
    return len(tests) > 1 and any(key(n.left) and key(n.comparators[0]) for n in tests)
