"""HumanEval and HumanEval+: `prompt` ends in the signature and docstring that `canonical_solution` continues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from raypoly.problems.formats import test_suites
from raypoly.problems.formats.python_source import without
from raypoly.problems.formats.row_fields import ANSWER, EntryPoint, Identifier, SourceRow, Text
from raypoly.values import Problem


class _Row(SourceRow):
    task_id: Identifier
    prompt: str
    entry_point: EntryPoint
    test: str
    canonical_solution: Text = ""


def marks(row: Mapping[str, Any]) -> bool:
    """Told from LeetCodeDataset by its solution's column, or a prompt that defines what is called."""
    if "task_id" not in row or "test_list" in row:
        return False
    prompt, name = row.get("prompt"), row.get("entry_point")
    if "canonical_solution" in row:
        return True
    return isinstance(prompt, str) and isinstance(name, str) and name.isidentifier() and _signature(prompt, name) >= 0


def read(row: Mapping[str, Any]) -> Problem:
    """What stands before the signature runs before candidate and tests alike: a check may use a helper of it."""
    it = _Row.model_validate(row)
    start = _signature(it.prompt, it.entry_point)
    if start < 0:
        raise ValueError(f"prompt: does not define {it.entry_point}")
    prefix = it.prompt[start:]
    return Problem(
        id=it.task_id,
        prompt=f"Complete this code:\n```python\n{it.prompt.strip()}\n```\n\n{ANSWER}",
        entry_point=it.entry_point,
        tests=test_suites.check(it.test),
        prelude=without(it.prompt[:start], it.entry_point),
        prefix=prefix,
        solution=prefix + it.canonical_solution if it.canonical_solution.strip() else "",
        reference_seconds=it.reference_seconds,
        metadata=it.about(),
    )


def _signature(prompt: str, name: str) -> int:
    """Where the definition of `name` begins, decorators included; -1 where there is none."""
    found = re.search(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b", prompt, re.MULTILINE)
    if found is None:
        return -1
    start = found.start()
    while prompt.startswith("@", above := prompt.rfind("\n", 0, max(start - 1, 0)) + 1, start):
        start = above
    return start
