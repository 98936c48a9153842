"""CodeContests: whole programs; public, private and generated tests as lists of inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, FailFast, ValidationError

from raypoly.problems.formats.python_source import first_program
from raypoly.problems.formats.row_fields import (
    OptionalIdentifier,
    SourceRow,
    Text,
    error_reason,
    join_tags,
    nonempty_texts,
    prompt_of,
    stdin_description,
)
from raypoly.problems.formats.test_suites import stdin_suite
from raypoly.values import Problem

_PYTHON3 = (3, "3", "PYTHON3")


class _Tests(BaseModel):
    input: Annotated[list[str], FailFast()]
    output: Annotated[list[str], FailFast()]


class _Row(SourceRow):
    name: str
    public_tests: Any = None
    private_tests: Any = None
    generated_tests: Any = None
    description: Text = ""
    input_file: Text = ""
    output_file: Text = ""
    solutions: Any = None
    cf_rating: OptionalIdentifier = ""
    cf_tags: Any = None


def recognises(row: Mapping[str, Any]) -> bool:
    return "public_tests" in row or "private_tests" in row


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    if not it.name:
        raise ValueError("name: empty")
    if "<image>" in it.description:
        raise ValueError("description: it needs an <image>, which is not in the row")
    if it.input_file or it.output_file:
        raise ValueError(f"input_file: the program reads or writes the file {it.input_file or it.output_file}")
    columns = {
        "public_tests": it.public_tests,
        "private_tests": it.private_tests,
        "generated_tests": it.generated_tests,
    }
    return Problem(
        id=it.name,
        prompt=prompt_of(stdin_description(it.description)),
        entry_point="",
        tests=stdin_suite(pair for name, tests in columns.items() for pair in pairs_of(tests, name)),
        solution=first_program(_in_python(it.solutions)),
        reference_seconds=it.reference_seconds,
        metadata=_about(it),
    )


def _about(it: _Row) -> dict[str, str]:
    """Codeforces' rating, which is 0 where it has none, and tags."""
    return it.about() | nonempty_texts({"difficulty": it.cf_rating.removeprefix("0"), "tags": join_tags(it.cf_tags)})


def pairs_of(tests: Any, column: str) -> Iterator[tuple[str, str]]:
    """Inputs and outputs, from two lists or from a list of pairs. Raises `ValueError` that names the column."""
    if tests:
        try:
            it = _Tests.model_validate(_columns(tests, ("input", "output")))
        except ValidationError as error:
            raise ValueError(f"{column}: {error_reason(error)}") from None
        if len(it.input) != len(it.output):
            raise ValueError(f"{column}: {len(it.input)} inputs, but {len(it.output)} outputs")
        yield from zip(it.input, it.output, strict=True)


def _in_python(solutions: Any) -> Iterator[str]:
    held = _columns(solutions, ("language", "solution"))
    if isinstance(held, Mapping):
        languages, programs = held.get("language"), held.get("solution")
        if isinstance(languages, list) and isinstance(programs, list):
            yield from (p for language, p in zip(languages, programs, strict=False) if language in _PYTHON3)


def _columns(value: Any, names: tuple[str, ...]) -> Any:
    """A dict of lists as it is; a list of dicts, as some readers make it, turned into one."""
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return {name: [item.get(name) for item in value] for name in names}
    return value
