"""A small gold group as a row, and files of such rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HASH = """def first_twice(nums):
    seen = set()
    for x in nums:
        if x in seen:
            return x
        seen.add(x)
"""
PAIRS = """def first_twice(nums):
    for i in range(len(nums)):
        for j in range(i):
            if nums[i] == nums[j]:
                return nums[i]
"""
RENAMED = HASH.replace("seen", "table").replace("x", "value")
ROW: dict[str, Any] = {
    "id": "twice",
    "problem": "Return the first number that occurs a second time.",
    "entry_point": "first_twice",
    "programs": [HASH, PAIRS, RENAMED, "I do not know."],
    "labels": [1, 2, 1, 0],
    "strategies": {"1": "hash table", "2": "all pairs"},
    "tests": "def check(candidate):\n    assert candidate(nums=[3, 1, 3, 1]) == 3\n",
}


def write_rows(path: Path, *rows: dict[str, Any] | str) -> Path:
    """Write rows as JSON lines. A string becomes a line unchanged."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path
