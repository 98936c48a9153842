"""Trees and linked lists: going down one side only, threads (Morris), links turned round, slow and fast walkers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from raypoly.strategies.features.recursions import recurses_once
from raypoly.strategies.features.scene import ORDER, Function, Scene, is_call, key, names, nodes_in, pairs, same
from raypoly.strategies.live_code.constructs import called

_SIDES = frozenset({"left", "right"})


def features(scene: Scene) -> Iterator[str]:
    """`floyd` and what `_links` yields; `tree`, `descent`, `inorder`, `bounds`, `nested_dfs`, `threads`."""
    yield from _links(scene)
    if _slow_and_fast(scene):
        yield "floyd"
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
        inner = nodes_in(node.body)
        if any(is_call(n, "pop", "popleft", "append") for n in inner):
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
        own = [n for n in ast.walk(node) if is_call(n, node.name)]
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
    for call in ast.walk(function):
        if is_call(call, getattr(function, "name", "")):
            for side in _sides(call.args):
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
    inner = nodes_in(loop.body)
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
    return any(isinstance(c.ops[-1], ORDER) and names(c) & told for c in compared)


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
        back = any(is_call(n, name) for n in ast.walk(other))
        inside = any(n is other for n in ast.walk(function))
        if not back and not inside and any(_calls_by_side(other).values()):
            return True
    return False


def _links(scene: Scene) -> Iterator[str]:
    """`twin_walk`, `links_copied`, `links_turned`, `links_walked`, `floyd`."""
    for loop in scene.nodes:
        if not isinstance(loop, (ast.For, ast.While)):
            continue
        body = nodes_in(loop.body)
        walking = [pair for n in body if isinstance(n, ast.Assign) for pair in pairs(n)]
        walkers = {
            key(target) for target, value in walking if isinstance(value, ast.Attribute) and same(value.value, target)
        }
        if len(walkers) > 1:
            yield "twin_walk"
            taken = [key(t) for s in loop.body if isinstance(s, ast.Assign) for t, v in pairs(s) if key(t) in walkers]
            if len({taken.count(name) for name in walkers if isinstance(loop, ast.While)} - {0}) > 1:
                yield "floyd"
        if walkers and any(is_call(n, "append") for n in body):
            yield "links_copied"
        turned = {key(target.value) for target, _ in walking if isinstance(target, ast.Attribute)}
        if any(isinstance(v, ast.Call) and key(t) in [key(a) for a in v.args[1:]] for t, v in walking if key(t)):
            yield "links_turned"
        if any(isinstance(value, ast.Name) and value.id in turned for _, value in walking):
            yield "links_turned" if _turns(body) else "links_walked"


def _turns(body: list[ast.AST]) -> bool:
    """`node.next = previous` and `previous = node`."""
    both = [pair for n in body if isinstance(n, ast.Assign) for pair in pairs(n)]
    stored = {(key(target.value), key(value)) for target, value in both if isinstance(target, ast.Attribute)}
    moved = {(key(value), key(target)) for target, value in both if isinstance(target, ast.Name)}
    return any(pair in moved for pair in stored if all(pair))


def _slow_and_fast(scene: Scene) -> bool:
    """A name that takes two steps of what another takes one of: `f(f(x))`, `x.next.next`, `a[a[x]]`."""
    for node in scene.nodes:
        if not isinstance(node, ast.Assign) or not scene.loops(node):
            continue
        values = [v for n in node.targets for t in ast.walk(n) if (name := key(t)) for v in scene.made[name]]
        for value in values:
            if _twice(value):
                return True
    return False


def _twice(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
        return node.attr == node.value.attr and isinstance(node.value.value, ast.Name)
    if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Call):
        return (
            same(node.func, node.args[0].func) and len(node.args[0].args) == 1 and not isinstance(node.func, ast.Name)
        ) or (isinstance(node.func, ast.Name) and same(node.func, node.args[0].func) and node.func.id.startswith("v"))
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Subscript):
        return same(node.value, node.slice.value) and isinstance(node.slice.slice, ast.Name)
    return False
