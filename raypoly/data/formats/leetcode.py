"""LeetCodeDataset: `prompt` is imports and helpers, `test` defines `check(candidate)`, `completion` is a solution.

DeepSeek's LeetCode contests: `test` makes `my_solution` and asserts what one of its methods returns.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.mbpp import check_of
from raypoly.data.formats.program_text import signature_of
from raypoly.data.formats.python_source import names_read, parse_python
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
        it.task_id,
        prompt,
        check_suite(it.test),
        it.entry_point,
        prelude=it.prompt,
        prefix=signature_of(it.starter_code, it.entry_point),
        solution=it.completion,
    )


class _ContestRow(SourceRow):
    task_id: Identifier
    test: str
    prompt: Text = ""
    prompt_sft: Text = ""


def to_problem_contest(row: Mapping[str, Any]) -> Problem:
    it = _ContestRow.model_validate(row)
    body = parse_python(it.test, "test").body
    made = [s for s in body if isinstance(s, ast.Assign) and ast.unparse(s.value) == "Solution()"]
    plain = _PlainCalls({ast.unparse(target) for s in made for target in s.targets})
    calls = [plain.visit(statement) for statement in body if statement not in made]
    read = names_read(calls)
    kept = [s for s in calls if not isinstance(s, ast.Assign) or ast.unparse(s.targets[0]) in read]
    asserts = "\n".join(map(ast.unparse, kept))
    if len(plain.methods) != 1:
        raise ValueError(f"test: calls {len(plain.methods)} methods of a Solution, and one can be called")
    (method,) = plain.methods
    _, _, check = check_of(asserts, "", "", f"def {method}(): pass")
    prompt, suite = prompt_of(it.prompt_sft or it.prompt), TestSuite("check", check)
    return it.make_problem(it.task_id, prompt, suite, f"Solution().{method}", PRELUDE)


class _PlainCalls(ast.NodeTransformer):
    """`my_solution.two(**test_input)` as `two(n=2)`, with the arguments that `test_input` was last set to."""

    def __init__(self, objects: set[str]) -> None:
        self.objects = objects
        self.methods = set[str]()
        self._arguments: dict[str, ast.Dict] = {}

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        if isinstance(node.value, ast.Dict):
            self._arguments[ast.unparse(node.targets[0])] = node.value
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if ast.unparse(node.value) not in self.objects:
            return node
        self.methods.add(node.attr)
        return ast.Name(node.attr, ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        given = self._arguments.get(ast.unparse(node.keywords[0].value)) if len(node.keywords) == 1 else None
        if given is not None and node.keywords[0].arg is None:
            names = [str(ast.literal_eval(key or "''")) for key in given.keys]
            node.keywords = [ast.keyword(name, value) for name, value in zip(names, given.values, strict=True)]
        return node
