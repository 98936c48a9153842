"""CodeContests: whole programs; public, private and generated tests as lists of inputs and outputs.

CodeContests+ has tests of its own for the same problems, in the configurations `1x` to `5x`, and a checker. A problem
that names a checker takes several answers; the checkers are C++ for testlib, and nothing here compiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, FailFast, ValidationError

from raypoly.core.values import Problem
from raypoly.data.formats.python_source import first_program
from raypoly.data.formats.row_fields import (
    Identifier,
    OptionalIdentifier,
    SourceRow,
    Text,
    error_reason,
    join_tags,
    nonempty_texts,
    prompt_of,
    stdin_description,
    stdin_suite,
)

_PYTHON3 = (3, "3", "PYTHON3")
_PYTHON3_PLUS = ("py3", "python3", "PYTHON3", 3)


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

    def about(self) -> dict[str, str]:
        """Beside the common columns, Codeforces' tags and rating, which is 0 where it has none."""
        own = {"difficulty": self.cf_rating.removeprefix("0"), "tags": join_tags(self.cf_tags)}
        return super().about() | nonempty_texts(own)


class _PlusRow(SourceRow):
    id: Identifier
    test_cases: Any = None
    checker: Text = ""
    description: Text = ""
    correct_submissions: Any = None
    true_positive_rate: float | None = None
    true_negative_rate: float | None = None

    def about(self) -> dict[str, str]:
        rates = {name: getattr(self, name) for name in ("true_positive_rate", "true_negative_rate")}
        return super().about() | {name: f"{rate:g}" for name, rate in rates.items() if rate is not None}


def recognises(row: Mapping[str, Any]) -> bool:
    return "public_tests" in row or "private_tests" in row


def recognises_plus(row: Mapping[str, Any]) -> bool:
    return "correct_submissions" in row or ("test_cases" in row and "checker" in row)


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    if not it.name:
        raise ValueError("name: empty")
    if "<image>" in it.description:
        raise ValueError("description: it needs an <image>, which is not in the row")
    if it.input_file or it.output_file:
        raise ValueError(f"input_file: the program reads or writes the file {it.input_file or it.output_file}")
    public = list(pairs_of(it.public_tests, "public_tests"))
    columns = ("private_tests", "generated_tests")
    tests = stdin_suite([*public, *(pair for name in columns for pair in pairs_of(getattr(it, name), name))])
    shown = stdin_suite(public) if public else None
    prompt, solution = prompt_of(stdin_description(it.description)), first_program(_in_python(it.solutions))
    return it.make_problem(it.name, prompt, tests, solution=solution, public_tests=shown)


def to_problem_plus(row: Mapping[str, Any]) -> Problem:
    it = _PlusRow.model_validate(row)
    if it.checker.strip():
        compiled = "#include" in it.checker
        how = "C++, which is not compiled here" if compiled else "a program with an unknown way to call it"
        raise ValueError(f"checker: {how}, and without it right answers would be refused")
    if not it.test_cases:
        raise ValueError("test_cases: there are none; they are in the configurations 1x to 5x")
    tests = stdin_suite(pairs_of(it.test_cases, "test_cases"))
    rows = it.correct_submissions if isinstance(it.correct_submissions, list) else []
    programs = (s.get("code") for s in rows if isinstance(s, Mapping) and s.get("language") in _PYTHON3_PLUS)
    prompt, solution = prompt_of(stdin_description(it.description)), first_program(programs)
    return it.make_problem(it.id, prompt, tests, solution=solution)


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
    # Some readers make a list of dicts of a dict of lists.
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return {name: [item.get(name) for item in value] for name in names}
    return value
