"""Trees and linked lists: one side only, threads (Morris), links turned round, slow and fast walkers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from raypoly.strategies.features.recursions import recurses_once
from raypoly.strategies.features.scene import (
    ORDER,
    Function,
    Scene,
    assigned,
    is_call,
    key,
    names,
    nodes_in,
    position,
    same,
    walk,
)
from raypoly.strategies.live_code.constructs import called
from raypoly.strategies.live_code.library_effects import PURE_NAMES

_SIDES = frozenset({"left", "right"})


def features(scene: Scene) -> Iterator[str]:
    """`floyd` and what `_links` yields; `descent`, `inorder`, `bounds`, `nested_dfs`, `threads`."""
    yield from _links(scene)
    if _slow_and_fast(scene):
        yield "floyd"
    if not any(isinstance(n, ast.Attribute) and n.attr in _SIDES for n in scene.nodes):
        return
    if any(_goes_down(scene, node) for node in scene.nodes):
        yield "descent"
    functions = [f for name, f in sorted(scene.functions.items()) if name in scene.recursive]
    if any(_between(scene, f) for f in functions) or any(map(_leftmost_first, scene.whiles)):
        yield "inorder"
    if any(map(_hands_values_down, functions)) or any(map(_keeps_values, scene.calls)):
        yield "bounds"
    if any(_searches_within(scene, f) for f in functions) or any(_searches_each(scene, c) for c in scene.calls):
        yield "nested_dfs"
    if any(map(_threads, scene.whiles)):
        yield "threads"


def _sides(nodes: Iterable[ast.AST]) -> set[str]:
    return {n.attr for n in nodes if isinstance(n, ast.Attribute) and n.attr in _SIDES}


def _goes_down(scene: Scene, node: ast.AST) -> bool:
    # one side is chosen and the other never seen: `node = node.left if x < node.val else node.right`
    if isinstance(node, ast.While):
        inner = nodes_in(node.body)
        steps = assigned(inner)
        walked = [
            part
            for target, value in steps
            for part in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
            if isinstance(part, ast.Attribute) and key(part.value) == key(target) != ""
        ]
        other = any(isinstance(target, ast.Attribute) for target, _ in steps)
        other |= any(is_call(n, "pop", "popleft", "append") for n in inner)
        return not other and _sides(walked) == _SIDES
    if isinstance(node, ast.FunctionDef) and node.name in scene.recursive:
        own = [n for n in walk(node) if is_call(n, node.name)]
        return _sides(nodes_in(arg for call in own for arg in call.args)) == _SIDES and recurses_once(node, own)
    return False


def _threads(loop: ast.While) -> bool:
    # morris: the last node of the left part is tied to the node itself, and untied again
    tied = assigned(walk(loop))
    sides = [value for target, value in tied if isinstance(target, ast.Attribute) and target.attr in _SIDES]
    unties = any(isinstance(value, ast.Constant) and value.value is None for value in sides)
    return unties and any(isinstance(value, ast.Name) for value in sides)


def _calls_by_side(function: Function) -> dict[str, list[ast.Call]]:
    # recursive calls on the left and on the right child, in the order of the text
    found: dict[str, list[ast.Call]] = {"left": [], "right": []}
    for call in walk(function):
        if is_call(call, getattr(function, "name", "")):
            for side in _sides(call.args):
                found[side].append(call)
    return found


def _between(scene: Scene, function: Function) -> bool:
    # in order: the node's value is used after the walk of its left side, and before that of its right one
    sides = _calls_by_side(function)
    if not sides["left"] or not sides["right"]:
        return False
    first, last = sides["left"][0], sides["right"][0]
    if isinstance(scene.parent.get(id(first)), (ast.Assign, ast.NamedExpr)):
        return False  # what the left side gave is worked with: the walk goes from the leaves up
    uses = [n for n in walk(function) if isinstance(n, ast.Attribute) and n.attr not in _SIDES]
    return any(position(first) < position(use) < position(last) for use in uses)


def _leftmost_first(loop: ast.While) -> bool:
    # in order with a stack: nodes are pushed on the way to the left, and popped before a step to the right
    inner = nodes_in(loop.body)
    steps = [(target, value) for target, value in assigned(inner) if isinstance(value, ast.Attribute)]
    left = any(value.attr == "left" and same(value.value, target) for target, value in steps)
    right = any(value.attr == "right" and isinstance(target, ast.Name) for target, value in steps)
    return left and right and {"append", "pop"} <= {called(n) for n in inner if isinstance(n, ast.Call)}


def _hands_values_down(function: Function) -> bool:
    # A child is told its parent's value, and compares with it: bounds
    mine = [arg.arg for arg in function.args.args]
    told: set[str] = set()
    for call in (call for calls in _calls_by_side(function).values() for call in calls):
        given = zip(mine[1 if isinstance(call.func, ast.Attribute) else 0 :], call.args, strict=False)
        told |= {name for name, arg in given if isinstance(arg, ast.Attribute) and arg.attr not in _SIDES}
    compared = [n for n in walk(function) if isinstance(n, ast.Compare)]
    return any(isinstance(c.ops[-1], ORDER) and names(c) & told for c in compared)


def _keeps_values(call: ast.Call) -> bool:
    # A child is put in line with its parent's value: bounds without recursion
    if called(call) not in ("append", "appendleft") or not call.args or not isinstance(call.args[0], ast.Tuple):
        return False
    parts = {part.attr for part in call.args[0].elts if isinstance(part, ast.Attribute)}
    return bool(parts & _SIDES) and bool(parts - _SIDES)


def _searches_each(scene: Scene, call: ast.Call) -> bool:
    # A loop over nodes that begins a walk at a child of each
    function = scene.functions.get(called(call))
    down = any(isinstance(arg, ast.Attribute) and arg.attr in _SIDES for arg in call.args)
    walks = function is not None and called(call) in scene.recursive and any(_calls_by_side(function).values())
    return walks and down and scene.function(call) not in scene.recursive and scene.repeated(call)


def _searches_within(scene: Scene, function: Function) -> bool:
    # A walk that begins another whole walk at each node: heights asked anew, parts searched anew
    name = getattr(function, "name", "")
    if not any(_calls_by_side(function).values()):
        return False
    for call in (n for n in walk(function) if isinstance(n, ast.Call)):
        other = scene.functions.get(called(call))
        if other is None or called(call) not in scene.recursive or called(call) == name:
            continue
        back = any(is_call(n, name) for n in walk(other))
        inside = any(n is other for n in walk(function))
        if not back and not inside and any(_calls_by_side(other).values()):
            return True
    return False


def _links(scene: Scene) -> Iterator[str]:
    # `twin_walk`, `links_copied`, `links_turned`, `floyd`
    for loop in scene.both_loops:
        body = nodes_in(loop.body)
        walking = assigned(body)
        walkers = {
            key(target) for target, value in walking if isinstance(value, ast.Attribute) and same(value.value, target)
        }
        if len(walkers) > 1:
            yield "twin_walk"
            taken = [key(target) for target, _ in assigned(loop.body) if key(target) in walkers]
            if len({taken.count(name) for name in walkers if isinstance(loop, ast.While)} - {0}) > 1:
                yield "floyd"
        if walkers and any(is_call(n, "append") for n in body):
            yield "links_copied"
        turned = {key(target.value) for target, _ in walking if isinstance(target, ast.Attribute)}
        if any(isinstance(v, ast.Call) and key(t) in [key(a) for a in v.args[1:]] for t, v in walking if key(t)):
            yield "links_turned"
        if any(isinstance(value, ast.Name) and value.id in turned for _, value in walking) and _turns(walking):
            yield "links_turned"


def _turns(steps: list[tuple[ast.expr, ast.expr]]) -> bool:
    # `node.next = previous` and `previous = node`
    stored = {(key(target.value), key(value)) for target, value in steps if isinstance(target, ast.Attribute)}
    moved = {(key(value), key(target)) for target, value in steps if isinstance(target, ast.Name)}
    return any(all(pair) for pair in stored & moved)


def _slow_and_fast(scene: Scene) -> bool:
    # A name that takes two steps of what another takes one of: `f(f(x))`, `x.next.next`, `a[a[x]]`
    looped = [node for node in scene.nodes if isinstance(node, ast.Assign) and scene.loops(node)]
    bound = {key(part) for node in looped for part in nodes_in(node.targets)} - {""}
    return any(_twice(value) for name in bound for value in scene.made.get(name, []))


def _twice(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
        return node.attr == node.value.attr and isinstance(node.value.value, ast.Name)
    if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(inner := node.args[0], ast.Call):
        if not same(node.func, inner.func):
            return False
        return node.func.id not in PURE_NAMES if isinstance(node.func, ast.Name) else len(inner.args) == 1
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Subscript):
        return same(node.value, node.slice.value) and isinstance(node.slice.slice, ast.Name)
    return False
