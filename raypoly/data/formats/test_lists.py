"""Tests that travel in one column of a row, whatever it is called: PrimeIntellect's problems, DeepCoder, verl's ground
truths and those of other trainers.

What they are is told by their shape: lists of inputs and outputs, cases with one each, assertions, or a
`check(candidate)`; as values, as JSON, as a Python literal, or packed as LiveCodeBench's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, FailFast, TypeAdapter

from raypoly.core.values import Comparison, Problem, TestSuite
from raypoly.data.formats import apps, leetcode, livecodebench
from raypoly.data.formats.long_integers import loads
from raypoly.data.formats.mbpp import check_of
from raypoly.data.formats.output_prediction import ASKED
from raypoly.data.formats.program_text import signature_of
from raypoly.data.formats.python_source import entry_point_of, first_program, parse_literal
from raypoly.data.formats.row_fields import (
    EntryPoint,
    OptionalIdentifier,
    SourceRow,
    Text,
    check_suite,
    prompt_of,
    require_python,
    stdin_description,
)


class ListedTest(BaseModel):
    """One test; the data sets call its kind `type` or `testtype`."""

    input: Any
    output: Any
    type: Text = ""
    testtype: Text = ""
    fn_name: Text = ""
    metadata: Any = None


class _Row(SourceRow):
    tests: Any = None
    verification_info: Any = None
    reward_model: Any = None
    reward_spec: Any = None
    verifier_metadata: Any = None
    test_cases: Any = None
    ground_truth: Any = None
    info: Any = None
    answer: Any = None
    inputs: Any = None
    outputs: Any = None
    problem: Text = ""
    question: Any = None
    prompt: Any = None
    messages: Any = None
    responses_create_params: Any = None
    starter_code: Text = ""
    func_name: Text = ""
    problem_id: OptionalIdentifier = ""
    question_id: OptionalIdentifier = ""
    id: OptionalIdentifier = ""
    hash_id: OptionalIdentifier = ""
    gold_standard_solution: Text = ""
    solution: Any = None
    solutions: Any = None
    metadata: Any = None
    extra_info: Any = None
    language: Any = None


class Tests(NamedTuple):
    entry_point: str
    suite: TestSuite
    prelude: str


COMPARISONS: Mapping[str, Comparison] = dict.fromkeys(("reward_spec", "ground_truth", "verifier_metadata"), "lines")
"""How outputs of whole programs are compared, by the column that holds the tests, where it is not as in APPS."""
_COLUMNS = (
    *("tests", "verification_info", "reward_model", "reward_spec", "verifier_metadata", "test_cases", "ground_truth"),
    *("info", "inputs", "answer"),
)
"""Those that may hold the tests; the first of a row that holds anything does."""
_INNER = ("ground_truth", "test_cases", "tests", "unit_tests", "verification_info")
_SHAPES = frozenset(("functional", "import_prefix", "assert_case", "inputs"))
_LONGEST_ANSWER = 200
_MODULES = (
    "import bisect, collections, datetime, functools, heapq, itertools, math, operator, random, re, string, sys\n"
)
_LIST = TypeAdapter(Annotated[list[ListedTest], FailFast()])
_NAME = TypeAdapter(EntryPoint)
_RUN = re.compile(r"^check\(([\w.()]+)\)\s*\Z", re.MULTILINE)


def recognises(row: Mapping[str, Any]) -> bool:
    return "verification_info" in row or "reward_model" in row or ("tests" in row and "problem" in row)


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    require_python(it.language, "language")
    beside = it.extra_info.get("reference") if isinstance(it.extra_info, Mapping) else None  # where code-r1 keeps it
    solutions = [it.gold_standard_solution, *apps.solution_list(it.solutions), beside, it.solution]
    solution = first_program(solutions)
    asked = it.responses_create_params.get("input") if isinstance(it.responses_create_params, Mapping) else None
    question = it.problem or next(filter(None, map(_question, (it.question, it.prompt, it.messages, asked))), "")
    column, held = _held(it)
    starter = it.starter_code or (_text(held, "starter_code") if column == "info" else "")
    known_as = it.problem_id or it.question_id or it.id or it.hash_id
    if column == "answer" and not holds_tests(held):
        return _asked_value(it, known_as, question, held)
    found = _read_tests(_unwrapped(held, column), column, starter.strip() or solution, solution, it.metadata)
    suite = found.suite
    if suite.kind == "stdin":
        suite = replace(suite, comparison=COMPARISONS.get(column, suite.comparison))
        question = stdin_description(question)
    known_as = known_as or apps.content_id(question, suite)
    prompt = prompt_of(question, starter)
    prefix = signature_of(starter, found.entry_point)
    return it.make_problem(known_as, prompt, suite, found.entry_point, found.prelude, prefix=prefix, solution=solution)


def holds_tests(column: Any) -> bool:
    try:
        held = _unwrapped(column, "")
    except ValueError:
        return False
    if isinstance(held, list):
        return bool(held) and (_are_assertions(held) or all(isinstance(t, Mapping) and "input" in t for t in held))
    return isinstance(held, Mapping) and bool(_SHAPES & held.keys())


def _held(it: _Row) -> tuple[str, Any]:
    for name in _COLUMNS:
        if (held := getattr(it, name)) not in (None, "", [], {}):
            if name == "inputs":
                held = {"inputs": _value(held, name), "outputs": _value(it.outputs, "outputs"), "fn_name": it.func_name}
            return name, _value(held, name) if name == "info" else held
    raise ValueError("there are no tests")


def _unwrapped(held: Any, name: str, depth: int = 4) -> Any:
    """The tests themselves: out of texts, of the objects around them, and of a list that holds a text alone."""
    if isinstance(held, str):
        held = [held] if held.lstrip().startswith(("assert ", "assert(")) else _value(held, name)
    if isinstance(held, Mapping):
        require_python(held.get("language"), name)
    if depth and isinstance(held, Mapping) and not _SHAPES & held.keys():
        for inner in _INNER:
            if held.get(inner) is not None:
                return _unwrapped(held[inner], f"{name}.{inner}", depth - 1)
    if depth and isinstance(held, list) and len(held) == 1 and isinstance(held[0], str) and not _are_assertions(held):
        return _unwrapped(held[0], name, depth - 1)
    return held


def _value(column: Any, name: str) -> Any:
    if not isinstance(column, str):
        return column
    if column.startswith("eJ"):  # as every stream of zlib begins in base64
        return livecodebench.unpack_tests(column, name)
    try:
        return loads(column)
    except ValueError:
        return parse_literal(column, name)


def _are_assertions(held: list[Any]) -> bool:
    return all(isinstance(test, str) and "assert" in test for test in held)


def _read_tests(held: Any, name: str, starter: str, solution: str, metadata: Any) -> Tests:
    if isinstance(held, Mapping) and "functional" in held:
        return _checked(held["functional"], name)
    if isinstance(held, Mapping) and "import_prefix" in held:
        called, prelude = _NAME.validate_python(held.get("entry_point")), _text(held, "import_prefix")
        return Tests(called, check_suite(_text(held, "test_code")), prelude)
    if isinstance(held, Mapping) and "assert_case" in held:
        held = held["assert_case"]
    if isinstance(held, list) and held and _are_assertions(held):
        called, _, check = check_of("\n".join(held), _MODULES, "", solution)
        return Tests(called, TestSuite("check", check), leetcode.PRELUDE)
    if isinstance(held, list) and not any(isinstance(test, str) for test in held):
        tests = _LIST.validate_python(held)
        if any("functional" in (test.type, test.testtype) for test in tests):
            named = (livecodebench.function_name(of) for of in (metadata, *(test.metadata for test in tests)))
            lines = [livecodebench.LiveCodeBenchTest.model_validate(test.model_dump()) for test in tests]
            called = entry_point_of(starter or "class Solution", next(filter(None, named), ""))
            return Tests(called, livecodebench.functional_suite(lines), livecodebench.PRELUDE)
        held = _as_lists(tests)
    if not isinstance(held, Mapping) or "inputs" not in held:
        raise ValueError(f"{name}: no tests of programs: neither inputs and outputs, nor assertions, nor a check")
    pairs = apps.InputOutput.model_validate(held)
    called = entry_point_of(starter, pairs.fn_name) if pairs.fn_name else ""
    return Tests(called, apps.suite_of(pairs, starter), livecodebench.PRELUDE)


def _as_lists(tests: list[ListedTest]) -> dict[str, Any]:
    names = {test.fn_name for test in tests}
    if len(names) > 1:
        raise ValueError(f"tests: they call different functions: {sorted(names)}")
    values = [_parsed(t) if t.fn_name and isinstance(t.input, str) else (t.input, t.output) for t in tests]
    return {"inputs": [v[0] for v in values], "outputs": [v[1] for v in values], "fn_name": "".join(names)}


def _parsed(test: ListedTest) -> tuple[Any, Any]:
    # open-r1's copy has both as texts of JSON.
    try:
        return loads(test.input), loads(test.output) if isinstance(test.output, str) else test.output
    except ValueError as error:
        raise ValueError(f"test_cases: the arguments of {test.fn_name} are not JSON: {error}") from None


def _checked(source: Any, name: str) -> Tests:
    """A `check` with the call that runs it, which names what is called."""
    run = _RUN.search(source) if isinstance(source, str) else None
    if run is None:
        raise ValueError(f"{name}: functional does not end in check(NAME)")
    return Tests(_NAME.validate_python(run[1]), check_suite(source), leetcode.PRELUDE)


def _asked_value(it: _Row, known_as: str, question: str, answer: Any) -> Problem:
    """A row that asks for a value, and no program."""
    text = answer.strip() if isinstance(answer, str) else repr(answer)
    if not text or "\n" in text or len(text) > _LONGEST_ANSWER:
        raise ValueError("answer: neither tests of programs nor a value of one short line")
    suite = TestSuite("answer", text)
    prompt = f"{question.strip()}\n\n{ASKED}" if question.strip() else ""
    return it.make_problem(known_as or apps.content_id(question, suite), prompt, suite)


def _text(held: Any, name: str) -> str:
    value = held.get(name) if isinstance(held, Mapping) else None
    return value if isinstance(value, str) else ""


def _question(prompt: Any) -> str:
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    text = last.get("content") if isinstance(last, Mapping) else last
    return text if isinstance(text, str) else ""
