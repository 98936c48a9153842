"""The imports and node helpers that LeetCodeDataset runs before a program, for copies of its tests that lack them.

    exec(PRELUDE + "assert is_same_list(list_node([1, 2]), list_node([1, 2]))")

They do what the data set's own do: `tree_node` takes LeetCode's levels, in which a missing child has no children.
"""

PRELUDE = """\
import bisect, collections, datetime, functools, heapq, itertools, math, operator, random, re, string
from typing import *
from functools import *
from collections import *
from itertools import *
from heapq import *
from bisect import *
from string import *
from operator import *
from math import *


class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next


class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right


def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head


def is_same_list(one, another):
    while one and another and one.val == another.val:
        one, another = one.next, another.next
    return not one and not another


def tree_node(values):
    if not values or values[0] is None:
        return None
    rest = iter(values[1:])
    root = TreeNode(values[0])
    parents = deque([root])
    while parents:
        parent = parents.popleft()
        for side in ("left", "right"):
            value = next(rest, None)
            if value is not None:
                child = TreeNode(value)
                setattr(parent, side, child)
                parents.append(child)
    return root


def is_same_tree(one, another):
    if not one or not another:
        return one is another
    same_below = is_same_tree(one.left, another.left) and is_same_tree(one.right, another.right)
    return one.val == another.val and same_below
"""
