"""LeetCodeDataset: `prompt` is imports and helpers, `test` defines `check(candidate)`, `completion` is a solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.problems.formats import test_suites
from raypoly.problems.formats.python_source import without
from raypoly.problems.formats.row_fields import EntryPoint, Identifier, SourceRow, Text, asked, dated, tagged, told
from raypoly.values import Problem


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


def marks(row: Mapping[str, Any]) -> bool:
    return "task_id" in row or ("entry_point" in row and "test" in row)


def read(row: Mapping[str, Any]) -> Problem:
    """The prompt is empty where the row has neither query nor description: enough for scoring, not for training."""
    it = _Row.model_validate(row)
    return Problem(
        id=it.task_id,
        prompt=it.query if it.query.strip() else asked(it.problem_description, it.starter_code),
        entry_point=it.entry_point,
        tests=test_suites.check(it.test),
        prelude=without(it.prompt, it.entry_point),
        solution=it.completion,
        reference_seconds=it.reference_seconds,
        metadata=_meta(it.meta) | it.about(),
    )


def _meta(meta: Any) -> dict[str, str]:
    """Of the columns of v0.2, which has the difficulty inside `meta`; its `question_title` is the statement."""
    if not isinstance(meta, Mapping):
        return {}
    day = dated(meta.get("estimated_date") or meta.get("question_date"))
    return told({"difficulty": meta.get("difficulty"), "date": day, "tags": tagged(meta.get("tags"))})
