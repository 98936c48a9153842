"""Plain tasks as rows of LeetCodeDataset, for trials of the study without its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raypoly.core.settings import load
from raypoly.core.values import Problem
from raypoly.data import build_problem_set
from tests.support.preparation_rows import write_rows


def leetcode_row(problem: Problem) -> dict[str, Any]:
    """The task with its tests as assertions."""
    calls = json.loads(problem.tests.source)
    checks = [f"    assert candidate(*{call['args']!r}) == {call['expected']!r}\n" for call in calls]
    return {
        "task_id": problem.id,
        "problem_description": problem.prompt,
        "prompt": problem.prelude,
        "entry_point": problem.entry_point,
        "test": "def check(candidate):\n" + "".join(checks),
        "completion": problem.solution,
    }


def write_leetcode_rows(folder: Path, train: int, test: int) -> Path:
    """A folder in the hub's layout: so many training tasks, and test tasks of other kinds; none is a composition."""
    splits = build_problem_set(load(None, ["problems.source=tasks", "problems.compositions=false"]).problems).splits
    folder.mkdir()
    write_rows(folder / "train.jsonl", map(leetcode_row, splits["train"][:train]))
    write_rows(folder / "test.jsonl", map(leetcode_row, splits["test"][:test]))
    return folder
