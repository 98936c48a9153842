"""MBPP, its sanitized part and MBPP+: assertions that call a function by its name; `code` is a solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from raypoly.problems.formats.assertion_check import check_of
from raypoly.problems.formats.row_fields import Identifier, SourceRow, Text, prompt_of
from raypoly.values import Problem, TestSuite


class _Row(SourceRow):
    task_id: Identifier
    test_list: list[str] = Field(min_length=1)
    text: Text = ""
    prompt: Text = ""
    code: Text = ""
    test_setup_code: Text = ""
    test_imports: list[str] = Field(default_factory=list)
    test: Text = ""


def recognises(row: Mapping[str, Any]) -> bool:
    return "test_list" in row


def to_problem(row: Mapping[str, Any]) -> Problem:
    """MBPP+ has a longer program of tests in `test`, which is run in place of `test_list`; the policy sees the list."""
    it = _Row.model_validate(row)
    shown = "\n".join(it.test_list)
    check = check_of(it.test or shown, "\n".join(it.test_imports), it.test_setup_code, it.code)
    description = it.text or it.prompt
    if description.strip():
        description = f"{description.strip()}\n\nYour code should pass these tests:\n```python\n{shown}\n```"
    return Problem(
        id=it.task_id,
        prompt=prompt_of(description),
        entry_point=check.entry_point,
        tests=TestSuite("check", check.source),
        prelude=check.prelude,
        solution=it.code,
        reference_seconds=it.reference_seconds,
        metadata=it.about(),
    )
