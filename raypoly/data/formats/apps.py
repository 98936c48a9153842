"""APPS, TACO and AReaL: `input_output` holds inputs and outputs, and the name of a function where one is called.

Outputs of functions are wrapped in a list of one in some rows and stand bare in others. They are unwrapped where every
output of the row is a list of one item, unless the code to be completed is annotated to return lists as deep as that.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.livecodebench import PRELUDE
from raypoly.data.formats.long_integers import loads
from raypoly.data.formats.program_text import signature_of
from raypoly.data.formats.python_source import entry_point_of, first_program, parse_python
from raypoly.data.formats.row_fields import (
    OptionalIdentifier,
    SourceRow,
    Text,
    call_suite,
    prompt_of,
    require_python,
    stdin_description,
    stdin_suite,
)


class InputOutput(BaseModel):
    """Tests as two lists of one length."""

    inputs: list[Any]
    outputs: list[Any]
    fn_name: Text = ""


class _Row(SourceRow):
    input_output: Any
    question: Text = ""
    prompt: Text = ""
    language: Text = ""
    solutions: Any = None
    starter_code: Text = ""
    problem_id: OptionalIdentifier = ""
    task_id: OptionalIdentifier = ""
    query_id: OptionalIdentifier = ""
    id: OptionalIdentifier = ""
    name: OptionalIdentifier = ""
    url: OptionalIdentifier = ""


_LISTS = ("List", "list", "Sequence", "Iterable", "Tuple", "tuple", "Set", "set")


def recognises(row: Mapping[str, Any]) -> bool:
    return "input_output" in row and "entry_point" not in row


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    require_python(it.language, "language")
    if not it.input_output:
        raise ValueError("input_output: empty, so there are no tests")
    held = loads(it.input_output) if isinstance(it.input_output, str) else it.input_output
    tests = InputOutput.model_validate(held)
    solution = first_program(solution_list(it.solutions))
    suite = suite_of(tests, it.starter_code)
    entry_point = entry_point_of(it.starter_code.strip() or solution, tests.fn_name) if tests.fn_name else ""
    question = it.question or it.prompt
    description = question if tests.fn_name else stdin_description(question)
    name = it.problem_id or it.task_id or it.query_id or it.id or it.name or it.url or content_id(question, suite)
    prompt = prompt_of(description, it.starter_code)
    prefix = signature_of(it.starter_code, entry_point)
    return it.make_problem(name, prompt, suite, entry_point, PRELUDE, prefix=prefix, solution=solution)


def suite_of(tests: InputOutput, starter: str) -> TestSuite:
    if len(tests.inputs) != len(tests.outputs):
        raise ValueError(f"input_output: {len(tests.inputs)} inputs, but {len(tests.outputs)} outputs")
    if not tests.fn_name:
        inputs = (_lines(given, "inputs") for given in tests.inputs)
        outputs = (_lines(output, "outputs") for output in tests.outputs)
        return stdin_suite(zip(inputs, outputs, strict=True), "tolerance")
    for number, arguments in enumerate(tests.inputs):
        if not isinstance(arguments, list):
            raise ValueError(f"input_output: inputs.{number} is not a list of arguments")
    results = tests.outputs
    if all(isinstance(output, list) and len(output) == 1 for output in results):
        declared = _declared_depth(starter, tests.fn_name)
        if declared is None or declared < max(map(_depth, results), default=0):
            results = [result[0] for result in results]
    return call_suite(zip(tests.inputs, results, strict=True))


def _lines(value: Any, where: str) -> str:
    parts = value if isinstance(value, list) else [value]
    for part in parts:
        if not isinstance(part, str | int | float) or isinstance(part, bool):
            raise ValueError(f"input_output: {where} holds what is neither text nor a list of lines")
    return "\n".join(map(str, parts))


def solution_list(solutions: Any) -> list[Any]:
    """A list, or one in JSON; empty for anything else: a problem can do without a solution."""
    try:
        value = loads(solutions) if isinstance(solutions, str) and solutions.strip() else solutions
    except ValueError:
        value = None
    return value if isinstance(value, list) else []


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _declared_depth(starter: str, name: str) -> int | None:
    """Depth of the lists in its return annotation; None without one."""
    try:
        tree = parse_python(
            f"{starter.rstrip()}\n        pass\n" if starter.rstrip().endswith(":") else starter, "starter_code"
        )
    except ValueError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name and node.returns is not None:
            return _annotated_depth(node.returns)
    return None


def _annotated_depth(node: ast.expr) -> int | None:
    if isinstance(node, ast.Name):
        return 1 if node.id in _LISTS else 0 if node.id in ("int", "str", "bool", "float") else None
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return None
    inner = _annotated_depth(node.slice) if not isinstance(node.slice, ast.Tuple) else 0
    if node.value.id == "Optional":
        return inner
    return None if inner is None or node.value.id not in _LISTS else inner + 1


def content_id(question: str, suite: TestSuite) -> str:
    """TACO names few of its problems."""
    return hashlib.sha256(f"{suite.hash}\n{question}".encode()).hexdigest()[:16]
