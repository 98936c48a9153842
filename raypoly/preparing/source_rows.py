"""A file's rows, one by one: each becomes a problem, or is set aside with a reason.

for number, row in rows_of(path):
    found = read_row(row, Facts("leetcode", number), source)

A format's own reader says what a row is, and gives its problem's date, difficulty and tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raypoly.preparing.candidates import SourceFacts, facts_of, split_of
from raypoly.preparing.prepare_config import SourceConfig
from raypoly.problems.formats import FORMATS, problem_of
from raypoly.problems.formats.row_fields import LONGEST_REASON, one_line, row_id
from raypoly.problems.jsonl import outside_window
from raypoly.values import Problem


@dataclass(frozen=True)
class ReadRow:
    """One row, read by itself."""

    facts: SourceFacts
    problem_id: str | None
    """None where the row has none."""
    reason: str = ""
    """Why it is set aside; empty where it can be used."""
    problem: Problem | None = None


def read_row(row: Any, facts: SourceFacts, source: SourceConfig) -> ReadRow:
    """What is in one row: a function of the row alone. A `ValueError` stands for one that can't be parsed."""
    problem_id: str | None = None
    try:
        if isinstance(row, ValueError):
            raise row
        problem = problem_of(row, facts.source)
        problem_id = problem.id
        _check_format(row, source.format)
        told = facts_of(problem, facts)
        if source.split is not None and split_of(row) != source.split:
            raise ValueError(f"its split is {split_of(row) or 'not said'}, not {source.split}")
        since, until = (None if day is None else day.isoformat() for day in (source.since, source.until))
        if why := outside_window(told.date, since, until):
            raise ValueError(why)
        if not problem.prompt:
            raise ValueError("its row has no text to ask the policy with")
    except ValueError as error:
        return ReadRow(facts, problem_id or row_id(row), one_line(str(error), LONGEST_REASON))
    return ReadRow(told, problem_id, "", problem)


def _check_format(row: Mapping[str, Any], name: str | None) -> None:
    if name is None:
        return
    known = next((format_.name for format_ in FORMATS if format_.recognises(row)), "none")
    if known != name:
        raise ValueError(f"its format is {known}, not {name}")
