"""ListNode and TreeNode from their values, by the class that the program itself uses, and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

NodeMaker = Callable[[str, list[Any]], Any]
"""Makes an object of kind `ListNode` or `TreeNode` from its values."""


class ListNode:
    """For programs whose prelude has none."""

    def __init__(self, val: Any = 0, next: Any = None) -> None:
        self.val = val
        self.next = next


class TreeNode:
    """For programs whose prelude has none."""

    def __init__(self, val: Any = 0, left: Any = None, right: Any = None) -> None:
        self.val = val
        self.left = left
        self.right = right


def maker(namespace: dict[str, Any]) -> NodeMaker:
    """Makes chains and trees of the classes in `namespace`, looked up when needed: a candidate may bring its own."""

    def make(kind: str, values: list[Any]) -> Any:
        if kind == "ListNode":
            return chain(namespace.get(kind, ListNode), values)
        return tree(namespace.get(kind, TreeNode), values)

    return make


def chain(kind: Any, values: list[Any]) -> Any:
    """A linked list of `values`, None where there are none."""
    head = None
    for value in reversed(values):
        node = kind(value)
        node.next = head
        head = node
    return head


def tree(kind: Any, levels: list[Any]) -> Any:
    """A tree from `wire`'s levels: (value,) a node, None a missing child."""
    if not levels or levels[0] is None:
        return None
    items = iter(levels)
    root = kind(next(items)[0])
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for side in ("left", "right"):
            item = next(items, None)
            if item is None:
                continue
            if type(item) is not tuple or len(item) != 1:
                raise ValueError("malformed data: a tree's level")
            child = kind(item[0])
            setattr(node, side, child)
            queue.append(child)
    return root


def chain_values(node: Any) -> list[Any] | None:
    """The values of a linked list, None where it has a cycle."""
    values, seen = [], set()
    while node is not None:
        if id(node) in seen:
            return None
        seen.add(id(node))
        values.append(node.val)
        node = node.next
    return values


def tree_levels(root: Any) -> list[Any] | None:
    """A tree level by level, each node as (value,) and each missing child as None; None where it has a cycle."""
    values: list[Any] = []
    queue, seen = deque([root]), set()
    while queue:
        node = queue.popleft()
        if node is None:
            values.append(None)
            continue
        if id(node) in seen:
            return None
        seen.add(id(node))
        values.append((node.val,))
        queue.append(node.left)
        queue.append(node.right)
    return values
