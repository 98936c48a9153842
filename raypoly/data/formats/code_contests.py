"""CodeContests, CodeContests+ and open-r1/codeforces: whole programs, with tests as lists of inputs and outputs.

CodeContests has public, private and generated tests. CodeContests+ has tests of its own for the same problems, in the
configurations `1x` to `5x`, and a checker. A problem that names a checker takes several answers; the checkers are C++
for testlib, and nothing here compiles.

open-r1/codeforces has the contest's own tests as far as Codeforces shows them. Codeforces cuts a long test off with an
ellipsis: such a test is left out, and `official_tests_complete` says whether any is missing. What is left still refuses
wrong programs, and may let slow ones by. Where several answers are right, `generated_checker` is a program that
decides. The first tests, as far as they are the statement's examples, are public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from typing import Annotated, Any

from pydantic import BaseModel, FailFast, ValidationError

from raypoly.core.config import OutputComparison
from raypoly.core.values import Problem
from raypoly.data.formats.python_source import first_program, parse_python
from raypoly.data.formats.row_fields import (
    READ_AND_PRINT,
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
    public = list(_pairs_of(it.public_tests, "public_tests"))
    columns = ("private_tests", "generated_tests")
    tests = [*public, *(pair for name in columns for pair in _pairs_of(getattr(it, name), name))]
    suite, shown = stdin_suite(tests, "tokens"), stdin_suite(public, "tokens") if public else None
    prompt, solution = prompt_of(stdin_description(it.description)), first_program(_in_python(it.solutions))
    return it.make_problem(it.name, prompt, suite, solution=solution, public_tests=shown)


def to_problem_plus(row: Mapping[str, Any]) -> Problem:
    it = _PlusRow.model_validate(row)
    if it.checker.strip():
        compiled = "#include" in it.checker
        how = "C++, which is not compiled here" if compiled else "a program with an unknown way to call it"
        raise ValueError(f"checker: {how}, and without it right answers would be refused")
    if not it.test_cases:
        raise ValueError("test_cases: there are none; they are in the configurations 1x to 5x")
    tests = stdin_suite(_pairs_of(it.test_cases, "test_cases"), "tokens")
    rows = it.correct_submissions if isinstance(it.correct_submissions, list) else []
    programs = (s.get("code") for s in rows if isinstance(s, Mapping) and s.get("language") in _PYTHON3_PLUS)
    prompt, solution = prompt_of(stdin_description(it.description)), first_program(programs)
    return it.make_problem(it.id, prompt, tests, solution=solution)


def _pairs_of(tests: Any, column: str) -> Iterator[tuple[str, str]]:
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


class _CodeforcesRow(SourceRow):
    id: Identifier
    official_tests: Any
    official_tests_complete: bool | None = None
    examples: Any = None
    description: Text = ""
    input_format: Text = ""
    output_format: Text = ""
    interaction_format: Text = ""
    note: Text = ""
    input_mode: Text = ""
    generated_checker: Text = ""
    time_limit: float | None = None
    memory_limit: float | None = None
    contest_id: OptionalIdentifier = ""
    index: Text = ""
    contest_start: int | None = None
    rating: OptionalIdentifier = ""

    def about(self) -> dict[str, str]:
        told = super().about()
        if self.rating:
            told["difficulty"] = self.rating
        if self.contest_id and self.index:
            told["url"] = f"https://codeforces.com/problemset/problem/{self.contest_id}/{self.index}"
        if self.contest_start is not None:
            try:
                told["date"] = datetime.fromtimestamp(self.contest_start, UTC).date().isoformat()
            except (OverflowError, OSError):
                raise ValueError("contest_start: no time in seconds since 1970") from None
        if self.official_tests_complete is False:
            told["tests"] = "incomplete"
        return told


def recognises_codeforces(row: Mapping[str, Any]) -> bool:
    return "official_tests" in row


def to_problem_codeforces(row: Mapping[str, Any]) -> Problem:
    it = _CodeforcesRow.model_validate(row)
    if it.input_mode not in ("", "stdio"):
        raise ValueError(f"input_mode: {it.input_mode}; a program has standard input and output, and no files")
    if it.interaction_format.strip():
        raise ValueError("interaction_format: an interactive problem, which no list of inputs and outputs can test")
    if it.generated_checker.strip():
        parse_python(it.generated_checker, "generated_checker")
    if not it.official_tests:
        raise ValueError("official_tests: there are none; those in generated_tests/ are rows of their own")
    prompt, tests = prompt_of(_statement(it)), _pairs_of(it.official_tests, "official_tests")
    whole = [test for test in tests if not any(text.rstrip().endswith("...") for text in test)]
    examples = {_words_of(example) for example in _pairs_of(it.examples, "examples")}
    public = list(takewhile(lambda test: _words_of(test) in examples, whole))
    checker = it.generated_checker.strip()
    comparison: OutputComparison = "lines" if checker else "tokens"  # a checker has a tolerance of its own
    shown = stdin_suite(public, comparison, checker) if public else None
    return it.make_problem(it.id, prompt, stdin_suite(whole, comparison, checker), public_tests=shown)


def _words_of(test: tuple[str, str]) -> tuple[tuple[str, ...], ...]:
    # An example and the official test may differ in white space.
    return tuple(tuple(text.split()) for text in test)


def _statement(it: _CodeforcesRow) -> str:
    if not it.description.strip():
        return ""
    shown = "\n\n".join(
        f"Input:\n{given.strip()}\nOutput:\n{output.strip()}" for given, output in _pairs_of(it.examples, "examples")
    )
    parts = {"Input": it.input_format, "Output": it.output_format, "Examples": shown, "Note": it.note}
    sections = "".join(f"\n\n## {name}\n{text.strip()}" for name, text in parts.items() if text.strip())
    limits = f"Time limit: {it.time_limit:g} s. " if it.time_limit else ""
    limits += f"Memory limit: {it.memory_limit:g} MB. " if it.memory_limit else ""
    return f"{it.description.strip()}{sections}\n\n{limits}{READ_AND_PRINT}"
