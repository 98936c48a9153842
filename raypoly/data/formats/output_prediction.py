"""CRUXEval and LiveCodeBench's code execution, and its test output prediction: what a call returns.

Such a problem has one answer and runs nothing. What is right is a Python literal, as Python printed it or as a test of
code generation has it in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, StringConstraints, TypeAdapter, ValidationError

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.long_integers import loads
from raypoly.data.formats.row_fields import Identifier, SourceRow, Text, error_reason

ASKED = "Write the value as a Python literal between [ANSWER] and [/ANSWER].\n"


_Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Execution(SourceRow):
    id: Identifier
    code: _Filled
    input: _Filled
    output: _Filled


class _Case(BaseModel):
    input: str
    output: str


class _TestOutput(SourceRow):
    question_id: Identifier
    test_id: Identifier
    question_content: _Filled
    function_name: _Filled
    test: Any
    starter_code: Text = ""


_CASES = TypeAdapter(list[_Case])


def recognises(row: Mapping[str, Any]) -> bool:
    return {"code", "input", "output"} <= row.keys()


def recognises_test(row: Mapping[str, Any]) -> bool:
    return {"test", "function_name", "question_content"} <= row.keys()


def to_problem(row: Mapping[str, Any]) -> Problem:
    """`input` is a call of the program `code`, in CRUXEval the arguments of its function `f`; `output` is what Python
    printed of its result.
    """
    it = _Execution.model_validate(row)
    called = it.input if "function_name" in row else f"f({it.input})"
    if "function_name" not in row and "def f(" not in it.code:
        raise ValueError("code: does not define the function f, which CRUXEval's rows call")
    asked = f"What does this call return?\n```python\n{called}\n```"
    prompt = f"Here is a Python program:\n```python\n{it.code}\n```\n\n{asked}\n\n{ASKED}"
    return it.make_problem(it.id, prompt, TestSuite("answer", it.output))


def to_problem_test(row: Mapping[str, Any]) -> Problem:
    """`test` has one case; each line of its input is one argument in JSON, and its output is JSON."""
    it = _TestOutput.model_validate(row)
    case = _case_of(it.test)
    try:
        arguments = ", ".join(repr(loads(line)) for line in case.input.split("\n") if line.strip())
        expected = repr(loads(case.output))
    except ValueError as error:
        raise ValueError(f"test: not JSON arguments line by line, and a result in JSON: {error}") from None
    code = f"\n\nThe function begins like this:\n```python\n{it.starter_code.rstrip()}\n```" if it.starter_code else ""
    asked = f"What does a correct function return for this call?\n```python\n{it.function_name}({arguments})\n```"
    prompt = f"{it.question_content}{code}\n\n{asked}\n\n{ASKED}"
    return it.make_problem(f"{it.question_id}-{it.test_id}", prompt, TestSuite("answer", expected))


def _case_of(test: Any) -> _Case:
    try:
        cases = _CASES.validate_python(loads(test) if isinstance(test, str) else test)
    except ValidationError as error:
        raise ValueError(f"test: {error_reason(error)}") from None
    except ValueError as error:
        raise ValueError(f"test: not JSON: {error}") from None
    if len(cases) != 1:
        raise ValueError(f"test: {len(cases)} cases, and a problem has one answer")
    return cases[0]
