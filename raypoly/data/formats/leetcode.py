"""LeetCodeDataset: `prompt` is imports and helpers, `test` defines `check(candidate)`, `completion` is a solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.core.values import Problem
from raypoly.data.formats.row_fields import (
    EntryPoint,
    Identifier,
    SourceRow,
    Text,
    check_suite,
    day_of,
    join_tags,
    nonempty_texts,
    prompt_of,
)

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
"""The imports and node helpers that the data set runs before a program, for copies of its tests that lack them.

`tree_node` takes LeetCode's levels, in which a missing child has no children of its own.
"""


class _Row(SourceRow):
    task_id: Identifier
    prompt: Text
    entry_point: EntryPoint
    test: str
    starter_code: Text = ""
    completion: Text = ""
    query: Text = ""
    problem_description: Text = ""
    meta: Any = None

    def about(self) -> dict[str, str]:
        """v0.2 has difficulty, day and tags inside `meta`; its `question_title` is the statement."""
        meta = self.meta if isinstance(self.meta, Mapping) else {}
        day = day_of(meta.get("estimated_date") or meta.get("question_date"))
        inner = {"difficulty": meta.get("difficulty"), "date": day, "tags": join_tags(meta.get("tags"))}
        return nonempty_texts(inner) | super().about()


def recognises(row: Mapping[str, Any]) -> bool:
    return "task_id" in row or ("entry_point" in row and "test" in row)


def to_problem(row: Mapping[str, Any]) -> Problem:
    """The prompt is empty where the row has neither query nor description: enough for scoring, not for training."""
    it = _Row.model_validate(row)
    prompt = it.query if it.query.strip() else prompt_of(it.problem_description, it.starter_code)
    return it.make_problem(
        it.task_id, prompt, check_suite(it.test), it.entry_point, prelude=it.prompt, solution=it.completion
    )
