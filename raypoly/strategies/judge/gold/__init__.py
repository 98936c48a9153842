"""Gold groups: programs whose strategies people have labelled, to measure a judge by.

    for group in read_gold_groups():              # the shipped set; read_gold_groups(Path("mine.jsonl")) for another
        group.programs, group.labels             # N texts and N ids, 0 = degenerate
        group.as_problem()                       # what the sandbox needs to run them

A file is JSON lines, plain or gzipped. A row needs `id`, `problem`, `programs` and `labels`; the rest may be missing.
docs/gold-set.md has the rules of labelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.python_source import prelude_without
from raypoly.data.formats.row_reader import FileRow, read_rows_by_id

PRELUDE = '''from typing import *
from functools import *
from collections import *
from itertools import *
from heapq import *
from bisect import *
from string import *
from operator import *
from math import *
from builtins import *
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import bisect, bisect_left, bisect_right

inf = float("inf")


class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next


class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val = val
        self.left = left
        self.right = right


def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head


def tree_node(levels):
    """A tree from its values level by level; None is a missing child, whose own children are not listed."""
    if not levels:
        return None
    root = TreeNode(levels[0])
    waiting, at = deque([root]), 1
    while at < len(levels):
        parent = waiting.popleft()
        if levels[at] is not None:
            parent.left = TreeNode(levels[at])
            waiting.append(parent.left)
        if at + 1 < len(levels) and levels[at + 1] is not None:
            parent.right = TreeNode(levels[at + 1])
            waiting.append(parent.right)
        at += 2
    return root


def is_same_list(one, other):
    while one and other:
        if one.val != other.val:
            return False
        one, other = one.next, other.next
    return one is None and other is None
'''
"""Runs before a gold program, as on LeetCode. `builtins` comes behind the stars: `pow` is to take three arguments."""


_SHIPPED = Path(__file__).with_name("gold.jsonl")
_NO_TESTS = "def check(candidate):\n    pass\n"


@dataclass(frozen=True)
class GoldGroup:
    """One problem with N labelled programs."""

    id: str
    problem: str
    """The statement, as a person reads it."""
    programs: tuple[str, ...]
    labels: tuple[int, ...]
    """A strategy id >= 1 of each program, 0 where degenerate; they mean nothing across groups."""
    task_id: str = ""
    entry_point: str = ""
    """What the tests call; empty where unknown."""
    strategies: Mapping[int, str] = field(default_factory=dict)
    """What each id stands for."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """What is special about a program, by its place from 0: `bug: ...`, `decoy: ...`, `renamed` ..."""
    certainty: str = ""
    """`high`, or `medium` where another careful reader might draw a line elsewhere."""
    reasons: str = ""
    """Why the lines are drawn so."""
    passes: tuple[bool, ...] | None = None
    """Whether each program passes the tests; None where nobody has said so."""
    tests: str = ""
    """Python that defines `check(candidate)`; empty where there is none."""

    def as_problem(self) -> Problem:
        """The problem for the sandbox; without tests every program that loads passes."""
        return Problem(
            id=self.id,
            prompt=self.problem,
            entry_point=self.entry_point,
            tests=TestSuite("check", self.tests or _NO_TESTS),
            prelude=prelude_without(PRELUDE, self.entry_point),
        )


class _Row(BaseModel):
    """A line of the file. Other columns are ignored: a gold set may have columns of its owner's."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)
    id: str = Field(min_length=1)
    problem: str
    programs: list[str] = Field(min_length=2)
    labels: list[int]
    task_id: str = ""
    entry_point: str = ""
    strategies: dict[str, str] = {}
    notes: dict[str, str] = {}
    certainty: str = ""
    reasons: str = ""
    passes: list[bool] | None = None
    tests: str = ""

    @model_validator(mode="after")
    def _fits_together(self) -> _Row:
        count = len(self.programs)
        if len(self.labels) != count:
            raise ValueError(f"{len(self.labels)} labels for {count} programs")
        if min(self.labels) < 0:
            raise ValueError("labels are strategy ids from 1, and 0 for degenerate")
        if self.passes is not None and len(self.passes) != count:
            raise ValueError(f"{len(self.passes)} passes for {count} programs")
        if not all(key.isdecimal() and int(key) < count for key in self.notes):
            raise ValueError(f"notes are by the place of a program, from 0 to {count - 1}")
        if not all(key.isdecimal() for key in self.strategies):
            raise ValueError("strategies are by their ids")
        unnamed = set(self.labels) - {0, *map(int, self.strategies)}
        if self.strategies and unnamed:
            raise ValueError(f"no strategy is given for label {min(unnamed)}")
        return self


def read_gold_groups(path: Path | None = None) -> list[GoldGroup]:
    """All groups of a file, by default the project's own, in the file's order.

    Raises `UsageError`, with file and line, where a row is no gold group, and where the file has none or can't be read.
    """
    what = "gold group; docs/gold-set.md says what a row looks like"
    return read_rows_by_id(_SHIPPED if path is None else path, _read_group, what)


def _read_group(source: FileRow) -> GoldGroup:
    row = source.parse_as(_Row)
    own = {
        "programs": tuple(row.programs),
        "labels": tuple(row.labels),
        "strategies": {int(key): text for key, text in row.strategies.items()},
        "notes": {int(key): text for key, text in row.notes.items()},
        "passes": None if row.passes is None else tuple(row.passes),
    }
    return GoldGroup(**row.model_dump() | own)
