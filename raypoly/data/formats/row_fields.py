"""Common parts of all formats' rows: kinds of column, prompts, tests, and one readable reason for a wrong row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from raypoly.core.config import OutputComparison
from raypoly.core.values import Comparison, Problem, TestSuite
from raypoly.data.formats.long_integers import dumps
from raypoly.data.formats.python_source import parse_literal, prelude_without

ANSWER = "Answer with one Python code block.\n"
READ_AND_PRINT = "Read the input from standard input and print the answer to standard output."
LONGEST_REASON = 300
_IDS = ("task_id", "id", "question_id", "problem_id", "name")  # columns that a row may be called by
_ENTRY_POINT = re.compile(r"[^\W\d]\w*(\(\))?(\.[^\W\d]\w*(\(\))?)*")
_RUNS_CHECK = re.compile(r"\ncheck\([\w.() \t]*\)\s*\Z")


def _identifier(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _text(value: Any) -> Any:
    return "" if value is None else value


def _entry_point(value: str) -> str:
    if not _ENTRY_POINT.fullmatch(value):
        raise ValueError("is not the name of a function, such as f or Solution().f")
    return value


Identifier = Annotated[str, BeforeValidator(_identifier), Field(min_length=1)]
"""Text or a whole number; a problem's id is always text."""
OptionalIdentifier = Annotated[str, BeforeValidator(lambda value: _text(_identifier(value)))]
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
        columns = {
            "difficulty": self.difficulty,
            "title": self.title or self.question_title,
            "url": self.url,
            "tags": join_tags(self.tags),
            "date": day_of(self.contest_date or self.estimated_date or self.date),
        }
        return nonempty_texts(columns)

    def make_problem(
        self, name: str, prompt: str, tests: TestSuite, entry_point: str = "", prelude: str = "", **parts: Any
    ) -> Problem:
        """The row as the problem `name`, less what the prelude must not define; `parts` are other parts of it."""
        return Problem(
            name,
            prompt,
            entry_point,
            tests,
            prelude=prelude_without(prelude, entry_point),
            reference_seconds=self.reference_seconds,
            metadata=self.about(),
            **parts,
        )


def nonempty_texts(columns: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in columns.items() if isinstance(value, str) and value and is_utf8(value)}


def is_utf8(text: str) -> bool:
    """False with half of a surrogate pair."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def join_tags(tags: Any) -> str:
    """Tags joined by commas, from a list or TACO's text that is one in Python; empty where there are none."""
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


def require_python(language: Any, column: str) -> None:
    if language not in (None, "") and str(language).lower() not in ("python", "python3", "py"):
        raise ValueError(f"{column}: a problem in {language}, and programs are Python here")


def prompt_of(description: str, starter: str = "") -> str:
    """Description, code to be completed if there is any, and how to answer."""
    if not description.strip():
        return ""
    code = f"\n\nComplete this code:\n```python\n{starter}\n```" if starter.strip() else ""
    return f"{description.strip()}{code}\n\n{ANSWER}"


def stdin_description(description: str) -> str:
    """The description, with the sentence that the program reads input and prints output; empty where there is none."""
    return f"{description.strip()}\n\n{READ_AND_PRINT}" if description.strip() else ""


def call_suite(cases: Iterable[tuple[list[Any], Any]], comparison: Comparison = "json") -> TestSuite:
    """Tests that call a function: (arguments, expected). Raises `ValueError` for none."""
    return TestSuite("calls", _json_list({"args": args, "expected": expected} for args, expected in cases), comparison)


def stdin_suite(cases: Iterable[tuple[str, str]], comparison: OutputComparison, checker: str = "") -> TestSuite:
    """Tests that run a whole program: (standard input, expected output). Raises `ValueError` for none."""
    return TestSuite(
        "stdin", _json_list({"input": given, "output": output} for given, output in cases), comparison, checker
    )


def check_suite(source: str) -> TestSuite:
    """Tests that are a function `check(candidate)`; a last line that would run it here and now is cut off.

    Raises `ValueError` where there is no such function.
    """
    if "def check(" not in source:
        raise ValueError("test: does not define check(candidate)")
    return TestSuite("check", _RUNS_CHECK.sub("\n", source))


def _json_list(cases: Iterable[dict[str, Any]]) -> str:
    text = ", ".join([dumps(case) for case in cases])
    if not text:
        raise ValueError("there are no tests")
    return f"[{text}]"


def row_id(row: Any) -> str | None:
    found = (row[name] for name in _IDS if isinstance(row.get(name), str | int)) if isinstance(row, Mapping) else ()
    return next(map(str, found), None)


def error_reason(error: ValueError) -> str:
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
