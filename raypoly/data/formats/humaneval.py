"""HumanEval and its kin: `prompt` ends in the signature and docstring that `canonical_solution` continues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from raypoly.core.values import Problem
from raypoly.data.formats.row_fields import ANSWER, EntryPoint, Identifier, SourceRow, Text, check_suite, require_python

_RUN = re.compile(r"^[ \t]*check\((\w+)\)", re.MULTILINE)


class _Row(SourceRow):
    task_id: Identifier
    prompt: str
    entry_point: EntryPoint
    test: str
    canonical_solution: Text = ""


def recognises(row: Mapping[str, Any]) -> bool:
    """Told from LeetCodeDataset by its solution's column, or a prompt that defines what is called."""
    if "task_id" not in row or "test_list" in row:
        return False
    prompt, name = row.get("prompt"), row.get("entry_point")
    if "canonical_solution" in row:
        return True
    return isinstance(prompt, str) and isinstance(name, str) and name.isidentifier() and _signature(prompt, name) >= 0


def to_problem(row: Mapping[str, Any]) -> Problem:
    """Code before the signature runs before candidate and tests alike: a check may use its helpers."""
    it = _Row.model_validate(row)
    start = _signature(it.prompt, it.entry_point)
    if start < 0:
        raise ValueError(f"prompt: does not define {it.entry_point}")
    prefix = it.prompt[start:]
    prompt = f"Complete this code:\n```python\n{it.prompt.strip()}\n```\n\n{ANSWER}"
    solution = prefix + it.canonical_solution if it.canonical_solution.strip() else ""
    tests, prelude = check_suite(it.test), it.prompt[:start]
    return it.make_problem(it.task_id, prompt, tests, it.entry_point, prelude, prefix=prefix, solution=solution)


def to_problem_x(row: Mapping[str, Any]) -> Problem:
    """HumanEval-X and HumanEvalPack: `task_id` begins with the language; the test's last line names what is called."""
    language, slash, _ = str(row.get("task_id")).partition("/")
    require_python(language if slash else None, "task_id")
    called = _RUN.search(str(row.get("test")))
    if called is None:
        raise ValueError("test: does not end in check(NAME)")
    return to_problem({**row, "entry_point": called[1]})


def to_problem_multipl_e(row: Mapping[str, Any]) -> Problem:
    """`tests` runs its check through a function `test_check`, which is cut off."""
    require_python(str(row.get("language")), "language")
    check, _, run = str(row.get("tests")).partition("\ndef test_check(")
    called = _RUN.search(run)
    if called is None:
        raise ValueError("tests: does not call check(NAME) in test_check")
    return to_problem({**row, "task_id": row.get("name"), "entry_point": called[1], "test": check + "\n"})


def _signature(prompt: str, name: str) -> int:
    """Index of the definition of `name`, decorators included; -1 if there is none."""
    found = re.search(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b", prompt, re.MULTILINE)
    if found is None:
        return -1
    start = found.start()
    while prompt.startswith("@", above := prompt.rfind("\n", 0, max(start - 1, 0)) + 1, start):
        start = above
    return start
