"""Re-packaged test lists: PrimeIntellect's verifiable-coding-problems, DeepCoder, and ground truths of code-r1."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, FailFast, TypeAdapter

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import apps, leetcode, livecodebench
from raypoly.data.formats.long_integers import loads
from raypoly.data.formats.python_source import entry_point_of, first_program, parse_literal
from raypoly.data.formats.row_fields import EntryPoint, OptionalIdentifier, SourceRow, Text, check_suite, prompt_of


class ListedTest(BaseModel):
    """One test; the data sets call its kind `type` or `testtype`."""

    input: Any
    output: Any
    type: Text = ""
    testtype: Text = ""
    fn_name: Text = ""
    metadata: Any = None


class _Row(SourceRow):
    verification_info: Any = None
    reward_model: Any = None
    tests: Any = None
    prompt: Any = None
    problem: Text = ""
    starter_code: Text = ""
    problem_id: OptionalIdentifier = ""
    gold_standard_solution: Text = ""
    solutions: Any = None
    metadata: Any = None
    extra_info: Any = None


_LIST = TypeAdapter(Annotated[list[ListedTest], FailFast()])
_NAME = TypeAdapter(EntryPoint)
_RUN = re.compile(r"^check\(([\w.()]+)\)\s*\Z", re.MULTILINE)


def recognises(row: Mapping[str, Any]) -> bool:
    return "verification_info" in row or "reward_model" in row or ("tests" in row and "problem" in row)


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    beside = it.extra_info.get("reference") if isinstance(it.extra_info, Mapping) else None  # where code-r1 keeps it
    solution = first_program([it.gold_standard_solution, *apps.solution_list(it.solutions), beside])
    name, suite = _suite(it, it.starter_code.strip() or solution)
    question = it.problem or _question(it.prompt)
    prelude = leetcode.PRELUDE if suite.kind == "check" else livecodebench.PRELUDE
    known_as, prompt = it.problem_id or apps.content_id(question, suite), prompt_of(question, it.starter_code)
    return it.make_problem(known_as, prompt, suite, name, prelude, solution=solution)


def _suite(it: _Row, starter: str) -> tuple[str, TestSuite]:
    """Entry point and tests."""
    held = _held(it)
    if isinstance(held, Mapping) and "functional" in held:
        return _checked(held["functional"])
    if isinstance(held, list):
        tests = _LIST.validate_python(held)
        if any("functional" in (test.type, test.testtype) for test in tests):
            named = (livecodebench.function_name(of) for of in (it.metadata, *(test.metadata for test in tests)))
            name = next(filter(None, named), "")
            lines = [livecodebench.LiveCodeBenchTest.model_validate(test.model_dump()) for test in tests]
            return entry_point_of(starter or "class Solution", name), livecodebench.functional_suite(lines)
        names = {test.fn_name for test in tests}
        if len(names) > 1:
            raise ValueError(f"tests: they call different functions: {sorted(names)}")
        values = [_parsed(t) if t.fn_name and isinstance(t.input, str) else (t.input, t.output) for t in tests]
        held = {"inputs": [v[0] for v in values], "outputs": [v[1] for v in values], "fn_name": "".join(names)}
    pairs = apps.InputOutput.model_validate(held)
    return entry_point_of(starter, pairs.fn_name) if pairs.fn_name else "", apps.suite_of(pairs, starter)


def _held(it: _Row) -> Any:
    """The tests, read from JSON or from a Python literal."""
    if it.tests is not None:
        return _value(it.tests, "tests")
    if it.verification_info is not None:
        held = _value(it.verification_info, "verification_info")
        language = held.get("language") if isinstance(held, Mapping) else None
        if language not in (None, "", "python", "python3"):
            raise ValueError(f"verification_info: its prompt asks for {language}, and programs are Python here")
        return held.get("test_cases") if isinstance(held, Mapping) else held
    model = _value(it.reward_model, "reward_model")
    return _value(model.get("ground_truth"), "reward_model.ground_truth") if isinstance(model, Mapping) else model


def _value(column: Any, name: str) -> Any:
    if not isinstance(column, str):
        return column
    try:
        return loads(column)
    except ValueError:
        return parse_literal(column, name)


def _parsed(test: ListedTest) -> tuple[Any, Any]:
    # open-r1's copy has both as texts of JSON.
    try:
        return loads(test.input), loads(test.output) if isinstance(test.output, str) else test.output
    except ValueError as error:
        raise ValueError(f"test_cases: the arguments of {test.fn_name} are not JSON: {error}") from None


def _checked(source: Any) -> tuple[str, TestSuite]:
    """A `check` with the call that runs it, which names what is called."""
    run = _RUN.search(source) if isinstance(source, str) else None
    if run is None:
        raise ValueError("reward_model.ground_truth: functional does not end in check(NAME)")
    return _NAME.validate_python(run[1]), check_suite(source)


def _question(prompt: Any) -> str:
    # A text, or the last message of a chat.
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    text = last.get("content") if isinstance(last, Mapping) else last
    return text if isinstance(text, str) else ""
