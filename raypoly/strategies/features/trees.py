"""Trees and lists of nodes: going down one side only, threads through a tree (Morris). Standard library only."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from raypoly.strategies.features.index_moves import pairs
from raypoly.strategies.features.recursions import recurses_once
from raypoly.strategies.features.scene import Function, Scene, key, names, same
from raypoly.strategies.live_code.constructs import called

_SIDES = frozenset({"left", "right"})
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def features(scene: Scene) -> Iterator[str]:
    """`tree`, `descent`, `inorder`, `bounds`, `nested_dfs`, `threads`."""
    if not any(isinstance(n, ast.Attribute) and n.attr in _SIDES for n in scene.nodes):
        return
    yield "tree"
    if any(_goes_down(scene, node) for node in scene.nodes):
        yield "descent"
    functions = [f for name, f in sorted(scene.functions.items()) if name in scene.recursive]
    if any(_between(scene, f) for f in functions) or any(_leftmost_first(scene, node) for node in scene.nodes):
        yield "inorder"
    if any(_hands_values_down(scene, f) for f in functions) or any(_keeps_values(scene, call) for call in scene.calls):
        yield "bounds"
    if any(_searches_within(scene, f) for f in functions) or any(_searches_each(scene, c) for c in scene.calls):
        yield "nested_dfs"
    if any(_threads(node) for node in scene.nodes):
        yield "threads"


def _sides(nodes: Sequence[ast.expr]) -> set[str]:
    return {n.attr for n in nodes if isinstance(n, ast.Attribute) and n.attr in _SIDES}


def _goes_down(scene: Scene, node: ast.AST) -> bool:
    """One side is chosen and the other never seen: `node = node.left if x < node.val else node.right`."""
    if isinstance(node, ast.While):
        inner = [n for stmt in node.body for n in ast.walk(stmt)]
        if any(isinstance(n, ast.Call) and called(n) in ("pop", "popleft", "append") for n in inner):
            return False
        steps = [p for n in inner if isinstance(n, ast.Assign) for p in pairs(n)]
        walked = [
            part
            for target, value in steps
            for part in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
            if isinstance(part, ast.Attribute) and key(part.value) == key(target) != ""
        ]
        linked = any(isinstance(target, ast.Attribute) for target, _ in steps)
        return not linked and _sides(walked) == _SIDES
    if isinstance(node, ast.FunctionDef) and node.name in scene.recursive:
        own = [n for n in ast.walk(node) if isinstance(n, ast.Call) and called(n) == node.name]
        handed = [
            part for call in own for arg in call.args for part in ast.walk(arg) if isinstance(part, ast.Attribute)
        ]
        return _sides(handed) == _SIDES and recurses_once(node, own)
    return False


def _threads(node: ast.AST) -> bool:
    """Morris: the last node of the left part is tied to the node itself, and untied again."""
    if not isinstance(node, ast.While):
        return False
    tied = [p for n in ast.walk(node) if isinstance(n, ast.Assign) for p in pairs(n) if isinstance(p[0], ast.Attribute)]
    sides = [value for target, value in tied if isinstance(target, ast.Attribute) and target.attr in _SIDES]
    unties = any(isinstance(value, ast.Constant) and value.value is None for value in sides)
    return unties and any(isinstance(value, ast.Name) for value in sides)


def _calls_by_side(function: Function) -> dict[str, list[ast.Call]]:
    """Recursive calls on the left and on the right child, in the order of the text."""
    found: dict[str, list[ast.Call]] = {"left": [], "right": []}
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        if called(call) == getattr(function, "name", ""):
            for side in {arg.attr for arg in call.args if isinstance(arg, ast.Attribute)} & _SIDES:
                found[side].append(call)
    return found


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _between(scene: Scene, function: Function) -> bool:
    """In order: the node's value is used after the walk of its left side, and before that of its right one."""
    sides = _calls_by_side(function)
    if not sides["left"] or not sides["right"]:
        return False
    first, last = sides["left"][0], sides["right"][0]
    if isinstance(scene.parent.get(id(first)), (ast.Assign, ast.NamedExpr)):
        return False  # what the left side gave is worked with: the walk goes from the leaves up
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr not in _SIDES]
    return any(_place(first) < _place(use) < _place(last) for use in uses)


def _leftmost_first(scene: Scene, loop: ast.AST) -> bool:
    """In order with a stack: nodes are pushed on the way to the left, and popped before a step to the right."""
    if not isinstance(loop, ast.While):
        return False
    inner = [n for stmt in loop.body for n in ast.walk(stmt)]
    done = {called(n) for n in inner if isinstance(n, ast.Call)}
    moves = [p for n in inner if isinstance(n, ast.Assign) for p in pairs(n)]
    left = any(isinstance(v, ast.Attribute) and v.attr == "left" and same(v.value, t) for t, v in moves)
    right = any(isinstance(v, ast.Attribute) and v.attr == "right" and isinstance(t, ast.Name) for t, v in moves)
    return left and right and {"append", "pop"} <= done


def _hands_values_down(scene: Scene, function: Function) -> bool:
    """A child is told its parent's value, and compares with it: bounds."""
    mine = [arg.arg for arg in function.args.args]
    told: set[str] = set()
    for calls in _calls_by_side(function).values():
        for call in calls:
            offset = 1 if isinstance(call.func, ast.Attribute) else 0
            for name, arg in zip(mine[offset:], call.args, strict=False):
                if isinstance(arg, ast.Attribute) and arg.attr not in _SIDES:
                    told.add(name)
    compared = [n for n in ast.walk(function) if isinstance(n, ast.Compare)]
    return any(isinstance(c.ops[-1], _ORDER) and names(c) & told for c in compared)


def _keeps_values(scene: Scene, call: ast.Call) -> bool:
    """A child is put in line with its parent's value: bounds without recursion."""
    if called(call) not in ("append", "appendleft") or not call.args or not isinstance(call.args[0], ast.Tuple):
        return False
    parts = [part.attr for part in call.args[0].elts if isinstance(part, ast.Attribute)]
    return bool(set(parts) & _SIDES) and bool(set(parts) - _SIDES)


def _searches_each(scene: Scene, call: ast.Call) -> bool:
    """A loop over nodes that begins a walk at a child of each."""
    function = scene.functions.get(called(call))
    down = any(isinstance(arg, ast.Attribute) and arg.attr in _SIDES for arg in call.args)
    walks = function is not None and called(call) in scene.recursive and any(_calls_by_side(function).values())
    return walks and down and scene.function(call) not in scene.recursive and scene.repeated(call)


def _searches_within(scene: Scene, function: Function) -> bool:
    """A walk that begins another whole walk at each node: heights asked anew, parts searched anew."""
    name = getattr(function, "name", "")
    if not any(_calls_by_side(function).values()):
        return False
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        other = scene.functions.get(called(call))
        if other is None or called(call) not in scene.recursive or called(call) == name:
            continue
        back = any(isinstance(n, ast.Call) and called(n) == name for n in ast.walk(other))
        inside = any(n is other for n in ast.walk(function))
        if not back and not inside and any(_calls_by_side(other).values()):
            return True
    return False
