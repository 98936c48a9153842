"""LiveCodeBench's code generation: methods called with JSON arguments, and programs from input to output.

Private tests are JSON, or base64 of zlib of JSON, or of a pickle of a text that is JSON. A pickle is a program. Nothing
here runs one: its instructions are listed, and only those that hold a text are let by.
"""

from __future__ import annotations

import binascii
import pickletools
import zlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, FailFast, TypeAdapter, ValidationError

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.long_integers import loads
from raypoly.data.formats.program_text import signature_of
from raypoly.data.formats.python_source import entry_point_of
from raypoly.data.formats.row_fields import (
    Identifier,
    SourceRow,
    Text,
    call_suite,
    error_reason,
    prompt_of,
    stdin_description,
    stdin_suite,
)

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
LARGEST = 1 << 28
"""Bytes unpacked: what becomes of them takes several times the memory."""
INSTRUCTIONS = 32
"""More of them hold no text but a program."""
_JSON = ("[", "{", '"')
_PASSED_OVER = frozenset(("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"))
_TEXTS = frozenset(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"))


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
    public = _tests(it.public_test_cases, "public_test_cases")
    tests = public + _tests(it.private_test_cases, "private_test_cases")
    name = function_name(it.metadata)
    kinds = {test.testtype or ("functional" if name else "stdin") for test in tests}
    if len(kinds) > 1 or not kinds <= {"functional", "stdin"}:
        raise ValueError(f"public_test_cases: testtype is not functional or stdin throughout: {sorted(kinds)}")
    called = kinds == {"functional"}
    if called and not name:
        raise ValueError("metadata: no func_name, which functional tests need")
    entry_point = entry_point_of(it.starter_code or "class Solution", name) if called else ""
    description = it.question_content if called else stdin_description(it.question_content)
    suite_of = functional_suite if called else _stdin_tests
    prompt, shown = prompt_of(description, it.starter_code), suite_of(public) if public else None
    prefix = signature_of(it.starter_code, entry_point)
    return it.make_problem(
        it.question_id, prompt, suite_of(tests), entry_point, PRELUDE, prefix=prefix, public_tests=shown
    )


def _stdin_tests(tests: list[LiveCodeBenchTest]) -> TestSuite:
    return stdin_suite(((test.input, test.output) for test in tests), "lines")


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

    return call_suite(cases(), "lines")


def function_name(metadata: Any) -> str:
    value = loads(metadata) if isinstance(metadata, str) and metadata.strip() else metadata
    name = value.get("func_name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else ""


def unpack_tests(column: str, name: str) -> Any:
    try:
        return loads(column if column.lstrip()[:1] in _JSON else _packed_text(_decompress(column)))
    except (ValueError, zlib.error) as error:
        raise ValueError(f"{name}: neither JSON nor packed JSON: {error}") from None


def _decompress(column: str) -> bytes:
    stream = zlib.decompressobj()
    data = stream.decompress(binascii.a2b_base64(column.encode()), LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"more than {LARGEST >> 20} MiB unpacked")
    if not stream.eof:
        raise ValueError("the compressed data are cut short")
    return data


def _packed_text(data: bytes) -> str | bytes:
    """The data if they are JSON, else the text that a pickle of nothing else holds."""
    if data[:1].decode("latin-1") in _JSON:
        return data
    text: str | None = None
    for number, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        if number >= INSTRUCTIONS:
            raise ValueError(f"the pickle has more than {INSTRUCTIONS} instructions; it was not run")
        if instruction.name in _TEXTS and text is None:
            text = argument
        elif instruction.name not in _PASSED_OVER:
            raise ValueError(f"the pickle is more than a text ({instruction.name}); it was not run")
    if text is None:
        raise ValueError("the pickle holds no text")
    return text
