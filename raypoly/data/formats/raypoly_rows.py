"""raypoly's own rows: every part of a `Problem` by name, the tests' cases as JSON values. Unknown columns are refused.

{"id": "add", "entry_point": "add", "tests": {"kind": "calls", "cases": [{"args": [1, 2], "expected": 3}]}}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator
from typing_extensions import TypedDict

from raypoly.core.config import OutputComparison
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.long_integers import dumps, loads
from raypoly.data.formats.row_fields import EntryPoint

_STRICT = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
_CALLED = {"calls", "check"}  # kinds of tests that call the entry point
_ValueComparison = Literal[OutputComparison, "json"]


class BudgetRow(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    steps: Annotated[int, Field(ge=0)]
    elements: Annotated[int, Field(ge=0)]
    depth: Annotated[int, Field(ge=0)]


class CallCase(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    args: list[Any]
    expected: Any
    kwargs: NotRequired[dict[str, Any]]
    budget: NotRequired[BudgetRow | None]


class StdinCase(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    input: str
    output: str


class OperationsCase(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    operations: Annotated[list[str], Field(min_length=1)]
    args: list[list[Any]]
    expected: list[Any]


class _Tests(BaseModel):
    model_config = _STRICT


class CallTests(_Tests):
    kind: Literal["calls"]
    cases: Annotated[list[CallCase], Field(min_length=1), FailFast()]
    comparison: _ValueComparison = "exact"


class CheckTests(_Tests):
    kind: Literal["check"]
    source: str

    @model_validator(mode="after")
    def _defines_check(self) -> CheckTests:
        if "def check(" not in self.source:
            raise ValueError("the source does not define check(candidate)")
        return self


class StdinTests(_Tests):
    kind: Literal["stdin"]
    cases: Annotated[list[StdinCase], Field(min_length=1), FailFast()]
    comparison: OutputComparison | None = None
    checker: str = ""


class OperationsTests(_Tests):
    kind: Literal["operations"]
    cases: Annotated[list[OperationsCase], Field(min_length=1), FailFast()]
    comparison: _ValueComparison = "exact"

    @model_validator(mode="after")
    def _aligned(self) -> OperationsTests:
        for number, case in enumerate(self.cases):
            if not len(case["operations"]) == len(case["args"]) == len(case["expected"]):
                raise ValueError(f"case {number} has operations, args and expected of different lengths")
        return self


class AnswerTests(_Tests):
    kind: Literal["answer"]
    answer: str = Field(min_length=1)
    comparison: Literal["exact", "math"] = "exact"


_Suite = CallTests | CheckTests | StdinTests | OperationsTests


class _Row(BaseModel):
    model_config = _STRICT
    id: str = Field(min_length=1)
    tests: Annotated[_Suite | AnswerTests, Field(discriminator="kind")]
    public_tests: Annotated[_Suite, Field(discriminator="kind")] | None = None
    prompt: str = ""
    entry_point: EntryPoint | Literal[""] = ""
    prelude: str = ""
    prefix: str = ""
    answer: Literal["completion", "fenced"] = "fenced"
    solution: str = ""
    reference_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    metadata: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_what_is_called(self) -> _Row:
        if self.tests.kind in _CALLED and not self.entry_point:
            raise ValueError(f"entry_point: tests of kind {self.tests.kind} call it, so it has to be there")
        return self

    @model_validator(mode="after")
    def _runs_one_program(self) -> _Row:
        of_program = ("entry_point", "prelude", "prefix", "solution", "public_tests")
        if self.tests.kind == "answer" and (given := [name for name in of_program if getattr(self, name)]):
            raise ValueError(f"{given[0]}: tests of kind answer run no program, so leave it out")
        public = self.tests.kind if self.public_tests is None else self.public_tests.kind
        if public != self.tests.kind and not {public, self.tests.kind} <= _CALLED:
            raise ValueError(f"public_tests: no program passes tests of kind {public} and of kind {self.tests.kind}")
        return self


def recognises(row: Mapping[str, Any]) -> bool:
    return "id" in row and "tests" in row and "problem" not in row


def to_problem(row: Mapping[str, Any]) -> Problem:
    row = _without_nulls(row)
    it = _Row.model_validate(row)
    suites = {"tests": _suite_of(it.tests, row["tests"])}
    if it.public_tests is not None:
        suites["public_tests"] = _suite_of(it.public_tests, row["public_tests"])
    return Problem(**{**dict(it), **suites})


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    # Parquet has a null for every name that another row has. Arguments and what is expected of a call stay as they are.
    kept = _known(row)
    if isinstance(kept.get("metadata"), Mapping):
        kept["metadata"] = _known(kept["metadata"])
    for name in ("tests", "public_tests"):
        if isinstance(kept.get(name), Mapping):
            suite = kept[name] = _known(kept[name])
            if isinstance(suite.get("cases"), list):
                suite["cases"] = [_case(case, suite.get("kind")) for case in suite["cases"]]
    return kept


def _case(case: Any, kind: Any) -> Any:
    if not isinstance(case, Mapping):
        return case
    kept = _known(case, ("expected", "budget") if kind == "calls" else ())
    if isinstance(kept.get("budget"), Mapping):
        kept["budget"] = _known(kept["budget"])
    return kept


def _known(values: Mapping[str, Any], nullable: Collection[str] = ()) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None or name in nullable}


def _suite_of(tests: _Suite | AnswerTests, given: Mapping[str, Any]) -> TestSuite:
    # The suite; its cases are as they were `given`, in the row.
    if isinstance(tests, CheckTests):
        return TestSuite("check", tests.source)
    if isinstance(tests, AnswerTests):
        return TestSuite("answer", tests.answer, tests.comparison)
    source = dumps(given["cases"])
    if not isinstance(tests, StdinTests):
        return TestSuite(tests.kind, source, tests.comparison)
    suite = TestSuite("stdin", source, checker=tests.checker)
    return suite if tests.comparison is None else suite.compared_by(tests.comparison)


def row_of(problem: Problem) -> dict[str, Any]:
    """The row that `problem_of` reads as `problem`, its `source` apart; parts that are empty are left out.

    Raises `ValueError` where the tests are no JSON.
    """
    names = ("prompt", "entry_point", "prelude", "prefix", "answer", "solution", "reference_seconds")
    parts = {name: getattr(problem, name) for name in names} | {"metadata": dict(problem.metadata)}
    kept = {name: value for name, value in parts.items() if value and (name, value) != ("answer", "fenced")}
    public = {} if problem.public_tests is None else {"public_tests": _suite_row(problem.public_tests)}
    return {"id": problem.id, **kept, "tests": _suite_row(problem.tests), **public}


def _suite_row(suite: TestSuite) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": suite.kind}
    if suite.kind in ("check", "answer"):
        row["source" if suite.kind == "check" else "answer"] = suite.source
    else:
        row["cases"] = loads(suite.source)
    if suite.comparison != suite.default_comparison:
        row["comparison"] = suite.comparison
    if suite.checker:
        row["checker"] = suite.checker
    return row
