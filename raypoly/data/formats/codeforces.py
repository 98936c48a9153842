"""open-r1/codeforces: whole programs, with the contest's own tests as far as Codeforces shows them.

Codeforces cuts a long test off with an ellipsis: such a test is left out, and `official_tests_complete` says whether
any is missing. What is left still refuses wrong programs, and may let slow ones by. Where several answers are right,
`generated_checker` is a program that decides. The first tests, as far as they are the statement's examples, are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from raypoly.core.values import Problem
from raypoly.data.formats.code_contests import pairs_of
from raypoly.data.formats.python_source import parse_python
from raypoly.data.formats.row_fields import (
    READ_AND_PRINT,
    Identifier,
    OptionalIdentifier,
    SourceRow,
    Text,
    prompt_of,
    stdin_suite,
)


class _Row(SourceRow):
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


def recognises(row: Mapping[str, Any]) -> bool:
    return "official_tests" in row


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    if it.input_mode not in ("", "stdio"):
        raise ValueError(f"input_mode: {it.input_mode}; a program has standard input and output, and no files")
    if it.interaction_format.strip():
        raise ValueError("interaction_format: an interactive problem, which no list of inputs and outputs can test")
    if it.generated_checker.strip():
        parse_python(it.generated_checker, "generated_checker")
    if not it.official_tests:
        raise ValueError("official_tests: there are none; those in generated_tests/ are rows of their own")
    prompt, tests = prompt_of(_statement(it)), pairs_of(it.official_tests, "official_tests")
    whole = [test for test in tests if not any(text.rstrip().endswith("...") for text in test)]
    examples = {_words_of(example) for example in pairs_of(it.examples, "examples")}
    public = list(takewhile(lambda test: _words_of(test) in examples, whole))
    checker = it.generated_checker.strip()
    shown = stdin_suite(public, checker) if public else None
    return it.make_problem(it.id, prompt, stdin_suite(whole, checker), public_tests=shown)


def _words_of(test: tuple[str, str]) -> tuple[tuple[str, ...], ...]:
    # An example and the official test may differ in white space.
    return tuple(tuple(text.split()) for text in test)


def _statement(it: _Row) -> str:
    if not it.description.strip():
        return ""
    shown = "\n\n".join(
        f"Input:\n{given.strip()}\nOutput:\n{output.strip()}" for given, output in pairs_of(it.examples, "examples")
    )
    parts = {"Input": it.input_format, "Output": it.output_format, "Examples": shown, "Note": it.note}
    sections = "".join(f"\n\n## {name}\n{text.strip()}" for name, text in parts.items() if text.strip())
    limits = f"Time limit: {it.time_limit:g} s. " if it.time_limit else ""
    limits += f"Memory limit: {it.memory_limit:g} MB. " if it.memory_limit else ""
    return f"{it.description.strip()}{sections}\n\n{limits}{READ_AND_PRINT}"
