"""What the rows of all formats share: kinds of column, prompts, and one readable reason for a row that is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from raypoly.problems.formats.python_source import parse_literal

ANSWER = "Answer with one Python code block.\n"
READ_AND_PRINT = "Read the input from standard input and print the answer to standard output."
LONGEST_REASON = 300
_IDS = ("task_id", "id", "question_id", "problem_id", "name")
"""Columns that a row may be called by."""
_ENTRY_POINT = re.compile(r"[^\W\d]\w*(\(\))?(\.[^\W\d]\w*(\(\))?)*")


def _identifier(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _optional(value: Any) -> Any:
    return _text(_identifier(value))


def _text(value: Any) -> Any:
    return "" if value is None else value


def _entry_point(value: str) -> str:
    if not _ENTRY_POINT.fullmatch(value):
        raise ValueError("is not the name of a function, such as f or Solution().f")
    return value


Identifier = Annotated[str, BeforeValidator(_identifier), Field(min_length=1)]
"""Text or a whole number; a problem's id is always text."""
OptionalIdentifier = Annotated[str, BeforeValidator(_optional)]
"""The same, empty where there is none."""
Text = Annotated[str, BeforeValidator(_text)]
"""Text; null is the empty text."""
EntryPoint = Annotated[str, AfterValidator(_entry_point)]
"""`f`, or `Solution().f`."""


class SourceRow(BaseModel):
    """Columns that any format may carry; those that no format knows are left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)
    reference_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    difficulty: Any = None
    title: Any = None
    question_title: Any = None
    url: Any = None
    tags: Any = None
    contest_date: Any = None
    estimated_date: Any = None
    date: Any = None

    def about(self) -> dict[str, str]:
        """The problem's metadata."""
        columns = {
            "difficulty": self.difficulty,
            "title": self.title or self.question_title,
            "url": self.url,
            "tags": join_tags(self.tags),
            "date": day_of(self.contest_date or self.estimated_date or self.date),
        }
        return nonempty_texts(columns)


def nonempty_texts(columns: Mapping[str, Any]) -> dict[str, str]:
    """The columns that are non-empty texts."""
    return {name: value for name, value in columns.items() if isinstance(value, str) and value and is_utf8(value)}


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: half of a surrogate pair can't."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def join_tags(tags: Any) -> str:
    """Tags with a comma between them, of a list or of TACO's text that is one in Python; empty where there are none."""
    if isinstance(tags, str):
        try:
            tags = parse_literal(tags, "tags")
        except ValueError:
            return ""
    if not isinstance(tags, list | tuple):
        return ""
    return ", ".join(tag for tag in tags if isinstance(tag, str) and tag and is_utf8(tag))


def day_of(value: Any) -> str:
    """The day, `YYYY-MM-DD`, of a text that begins with it or of a time; empty where it is neither."""
    if isinstance(value, date):
        return (value.date() if isinstance(value, datetime) else value).isoformat()
    try:
        return date.fromisoformat(value[:10]).isoformat() if isinstance(value, str) else ""
    except ValueError:
        return ""


def prompt_of(description: str, starter: str = "") -> str:
    """The prompt: the description, the code to be completed if there is any, and how to answer."""
    if not description.strip():
        return ""
    code = f"\n\nComplete this code:\n```python\n{starter}\n```" if starter.strip() else ""
    return f"{description.strip()}{code}\n\n{ANSWER}"


def stdin_description(description: str) -> str:
    """The description, with the sentence that the program reads input and prints output; empty where there is none."""
    return f"{description.strip()}\n\n{READ_AND_PRINT}" if description.strip() else ""


def row_id(row: Any) -> str | None:
    """The id of a row that can't be used; None where it has none."""
    found = (row[name] for name in _IDS if isinstance(row.get(name), str | int)) if isinstance(row, Mapping) else ()
    return next(map(str, found), None)


def error_reason(error: ValueError) -> str:
    """One line that says which column is wrong, and how."""
    text = str(error)
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_context=False, include_input=False)[:3]
        text = "; ".join(
            f"{'.'.join(map(str, detail['loc'])) or 'row'}: {detail['msg'].removeprefix('Value error, ')}"
            for detail in details
        )
    return one_line(text, LONGEST_REASON)


def one_line(text: str, size: int) -> str:
    """One printable line of at most `size` characters."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text[: 8 * size].split()))
    return line if len(line) <= size else line[: size - 3] + "..."
