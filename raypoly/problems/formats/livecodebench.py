"""LiveCodeBench's code generation: methods called with JSON arguments, and programs from input to output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, FailFast, TypeAdapter, ValidationError

from raypoly.problems.formats.long_integers import loads
from raypoly.problems.formats.private_tests import unpack_tests
from raypoly.problems.formats.python_source import entry_point_of, prelude_without
from raypoly.problems.formats.row_fields import Identifier, SourceRow, Text, error_reason, prompt_of, stdin_description
from raypoly.problems.formats.test_suites import call_suite, stdin_suite
from raypoly.values import Problem, TestSuite

_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
PRELUDE = (
    "".join(f"from {module} import *\n" for module in [*_MODULES, "builtins", "typing"])
    + "".join(f"import {module}\n" for module in _MODULES)
    + "sys.setrecursionlimit(50000)\n"
)
"""The names that its authors give every program; `builtins` comes late because `math` and `operator` hide some."""


class LiveCodeBenchTest(BaseModel):
    input: str
    output: str
    testtype: str = ""


class _Row(SourceRow):
    question_id: Identifier
    public_test_cases: Any
    private_test_cases: Any = None
    question_content: Text = ""
    starter_code: Text = ""
    metadata: Any = None


_TESTS = TypeAdapter(Annotated[list[LiveCodeBenchTest], FailFast()])


def recognises(row: Mapping[str, Any]) -> bool:
    return "public_test_cases" in row


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    tests = _tests(it.public_test_cases, "public_test_cases") + _tests(it.private_test_cases, "private_test_cases")
    name = function_name(it.metadata)
    kinds = {test.testtype or ("functional" if name else "stdin") for test in tests}
    if len(kinds) > 1 or not kinds <= {"functional", "stdin"}:
        raise ValueError(f"public_test_cases: testtype is not functional or stdin throughout: {sorted(kinds)}")
    called = kinds == {"functional"}
    if called and not name:
        raise ValueError("metadata: no func_name, which functional tests need")
    entry_point = entry_point_of(it.starter_code or "class Solution", name) if called else ""
    description = it.question_content if called else stdin_description(it.question_content)
    return Problem(
        id=it.question_id,
        prompt=prompt_of(description, it.starter_code),
        entry_point=entry_point,
        tests=functional_suite(tests) if called else stdin_suite((test.input, test.output) for test in tests),
        prelude=prelude_without(PRELUDE, entry_point),
        reference_seconds=it.reference_seconds,
        metadata=it.about(),
    )


def _tests(column: Any, name: str) -> list[LiveCodeBenchTest]:
    if not column:
        return []
    try:
        return _TESTS.validate_python(unpack_tests(column, name) if isinstance(column, str) else column)
    except ValidationError as error:
        raise ValueError(f"{name}: {error_reason(error)}") from None


def functional_suite(tests: list[LiveCodeBenchTest]) -> TestSuite:
    """Each line of an input is one argument in JSON."""

    def cases() -> Iterator[tuple[list[Any], Any]]:
        for number, test in enumerate(tests):
            try:
                yield [loads(line) for line in test.input.strip().split("\n") if line.strip()], loads(test.output)
            except ValueError as error:
                raise ValueError(f"test {number}: not JSON arguments line by line: {error}") from None

    return call_suite(cases())


def function_name(metadata: Any) -> str:
    value = loads(metadata) if isinstance(metadata, str) and metadata.strip() else metadata
    name = value.get("func_name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else ""
