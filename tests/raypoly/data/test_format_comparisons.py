"""A row of each format in its true schema: a right, a wrong and a borderline answer get what the data set's own grader
gives, by `raypoly score` and from the rows that `raypoly prepare` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from raypoly.core import settings
from raypoly.core.config import OutputComparison, ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data import build_problem_set
from raypoly.data.formats import read_problems
from raypoly.data.preparing import PrepareConfig
from tests.raypoly.data.source_rows import (
    APPS,
    CODE_CONTESTS,
    CODE_CONTESTS_PLUS,
    CODEFORCES,
    HUMANEVAL,
    LEETCODE,
    MBPP,
    TACO,
    Row,
    code_r1,
    deepcoder,
    intellect,
    livecodebench,
)
from tests.support.preparation_rows import write_rows
from tests.support.program_files import Command, read_rows
from workflows.prepare import prepare

PRINT = "print({} % (int(input()) / 3))"
PRINTS = {"right": PRINT.format("'%.6f'"), "wrong": PRINT.format("'%.3f'"), "borderline": PRINT.format("'%.9f'")}
FUNCTION = "def third(n): return {}"
METHOD = "class Solution:\n    def third(self, n): return {}"
VALUES = {"right": "round(n / 3, 6)", "wrong": "round(n / 3, 3)", "borderline": "n / 3"}
READS = {"input": "2\n", "output": "0.666667\n"}
LISTS: Row = {"inputs": ["2\n"], "outputs": ["0.666667\n"]}
CALL: Row = {"fn_name": "third", "inputs": [[2]], "outputs": [0.666667]}
LCB_CALL = {"input": "2", "output": "0.666667", "testtype": "functional"}
LCB_METHOD = "class Solution:\n    def third(self, n: int) -> float:\n        "
NAMED = {"func_name": "third"}
CHECK = "def check(candidate):\n    assert abs(candidate(2) - 0.666667) < 1e-5\n"
COLUMNS = {"input": ["2\n"], "output": ["0.666667\n"]}
NO_SOLUTION: Row = {"solutions": None}


def own_stdin(name: str, **stated: str) -> Row:
    return {"id": name, "tests": {"kind": "stdin", "cases": [READS], **stated}}


def own_calls(name: str, **stated: str) -> Row:
    cases = [{"args": [2], "expected": 0.666667}]
    return {"id": name, "entry_point": "third", "tests": {"kind": "calls", "cases": cases, **stated}}


ROWS: list[tuple[str, Row, str]] = [
    ("raypoly", own_stdin("plain"), "passed"),
    *(("raypoly", own_stdin(name, comparison=name), "wrong") for name in ("exact", "lines")),
    *(("raypoly", own_stdin(name, comparison=name), "passed") for name in ("tokens", "tolerance")),
    ("raypoly calls", own_calls("called"), "wrong"),
    ("raypoly calls", own_calls("json", comparison="json"), "passed"),
    ("LiveCodeBench", livecodebench("stdin", "", [READS | {"testtype": "stdin"}], "[]", {}), "wrong"),
    ("LiveCodeBench functional", livecodebench("call", LCB_METHOD, [LCB_CALL], "[]", NAMED), "wrong"),
    ("CodeContests", CODE_CONTESTS | {"public_tests": COLUMNS, "generated_tests": COLUMNS} | NO_SOLUTION, "passed"),
    ("CodeContests+", CODE_CONTESTS_PLUS | {"test_cases": [READS], "correct_submissions": []}, "passed"),
    ("Codeforces", CODEFORCES | {"official_tests": [READS], "examples": [], "title": "Third"}, "passed"),
    ("APPS", APPS | {"input_output": json.dumps(LISTS), "url": ""} | NO_SOLUTION, "passed"),
    ("TACO", TACO | {"input_output": json.dumps(LISTS)} | NO_SOLUTION, "passed"),
    ("TACO function", TACO | {"input_output": json.dumps(CALL), "url": "taco-function"} | NO_SOLUTION, "passed"),
    ("PrimeIntellect", intellect(1, {"language": "python", "test_cases": [READS]}) | {"gold_standard_solution": ""},
     "passed"),
    ("DeepCoder", deepcoder(LISTS), "passed"),
    ("DeepCoder function", deepcoder(CALL), "passed"),
    ("DeepCoder lcbv5", deepcoder([LCB_CALL], starter_code=LCB_METHOD, metadata=NAMED), "wrong"),
    ("code-r1", code_r1("TACO", LISTS, ""), "passed"),
    ("HumanEval", HUMANEVAL | {"entry_point": "third", "prompt": "def third(n):\n", "test": CHECK}, "passed"),
    ("MBPP", MBPP | {"code": FUNCTION.format(0), "test_list": ["assert abs(third(2) - 0.666667) < 1e-5"]}, "passed"),
    ("LeetCodeDataset", LEETCODE | {"entry_point": "Solution().third", "test": CHECK}, "passed"),
]  # fmt: skip
"""(Format, row, what the borderline answer is)."""


def asked(row: Row, number: int) -> Row:
    """The row with a statement that is like no other row's, so that all are kept."""
    text = " ".join(f"word{number}x{place}" for place in range(20))
    told = {name: text for name in ("description", "question_content", "question", "problem", "text", "query")}
    told |= {"prompt": text} if "tests" in row or "verification_info" in row else {}
    if "reward_model" in row:
        told["prompt"] = [{"role": "user", "content": text}]
    if "canonical_solution" in row:
        told["prompt"] = f'def third(n):\n    """{text}"""\n'
    return row | {name: value for name, value in told.items() if name in row or name == "prompt"}


def programs_of(problem: Problem) -> dict[str, str]:
    if problem.tests.kind == "stdin":
        return PRINTS
    shape = METHOD if problem.entry_point.startswith("Solution") else FUNCTION
    return {answer: shape.format(value) for answer, value in VALUES.items()}


def test_each_format_compares_as_its_data_sets_grader_also_in_a_prepared_set(command: Command, tmp_path: Path) -> None:
    rows = [asked(row, number) for number, (_, row, _) in enumerate(ROWS)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    problems = read_problems(file).problems
    assert len(problems) == len(rows), read_problems(file).rejected
    codes = ((problem.id, answer, code) for problem in problems for answer, code in programs_of(problem).items())
    programs = [{"id": f"{name}, {answer}", "problem_id": name, "code": code} for name, answer, code in codes]
    write_rows(tmp_path / "programs.jsonl", programs)
    sources = {"mine": {"path": str(file)}}
    never = {"solutions": {"check": False}, "sampling": "off", "split": {"rest": "test"}}
    prepare(PrepareConfig.model_validate({"sources": sources, **never, "run": {"dir": str(tmp_path / "run")}}))
    for where in (file, tmp_path / "run" / "data" / "test.jsonl"):
        out = tmp_path / "verdicts.jsonl"
        ended = command("score", "--problems", where, "--programs", "programs.jsonl", "--out", out)
        assert ended.returncode == 0, ended.stderr
        found = {row["id"]: row["status"] for row in read_rows(out)}
        for problem, (name, _, borderline) in zip(problems, ROWS, strict=True):
            wanted = {"right": "passed", "wrong": "wrong", "borderline": borderline}
            assert {answer: found[f"{problem.id}, {answer}"] for answer in wanted} == wanted, (name, problem.id)


def test_a_comparison_that_is_asked_for_replaces_those_of_the_rows(command: Command, tmp_path: Path) -> None:
    rows = [asked(row, number) for number, (_, row, _) in enumerate(ROWS)][:9]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    config = ProblemsConfig(source="jsonl", path=str(file), validation=1, test=1)
    hashes, stated = {build_problem_set(config).hash}, ["right", "borderline"]
    programs = [{"id": answer, "problem_id": "lcb-stdin", "code": PRINTS[answer]} for answer in stated]
    write_rows(tmp_path / "programs.jsonl", programs)
    given = ("score", "--problems", file, "--programs", "programs.jsonl", "--out", "verdicts.jsonl")
    for comparison in get_args(OutputComparison):
        built = build_problem_set(config.model_copy(update={"comparison": comparison}))
        suites = [suite for members in built.splits.values() for it in members for suite in (it.tests, it.public_tests)]
        assert {suite.comparison for suite in suites if suite is not None} == {comparison}
        hashes.add(built.hash)
        words = {"sources": {"mine": {"path": str(file), "comparison": comparison}}, "solutions": {"check": False}}
        folder = tmp_path / comparison
        never = {"sampling": "off", "split": {"rest": "test"}, "run": {"dir": str(folder)}}
        prepare(PrepareConfig.model_validate({**words, **never}))
        prepared = read_problems(folder / "data" / "test.jsonl").problems
        assert {problem.tests.comparison for problem in prepared} == {comparison}
        assert command(*given, "--comparison", comparison).returncode == 0
        found = [row["status"] for row in read_rows(tmp_path / "verdicts.jsonl")]
        assert found == ["passed", "passed" if comparison in ("tokens", "tolerance") else "wrong"]
    assert len(hashes) == 5


def test_a_comparison_that_does_not_exist_is_named_with_those_that_do(command: Command, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [own_stdin("plain")])
    known = ("format", "exact", "lines", "tokens", "tolerance")
    ended = command("score", "--problems", file, "--validate", "--comparison", "loose")
    assert ended.returncode == 2
    assert ended.stderr == f"--comparison loose is unknown: known are {', '.join(known)}.\n"
    ended = command("score", "--run", tmp_path, "--comparison", "tokens")
    assert (ended.returncode, "beside it go --problems" in ended.stderr) == (2, True)
    with pytest.raises(UsageError, match=r"problems\.comparison=loose") as caught:
        settings.load(None, ["problems.comparison=loose"])
    assert all(f"`{name}`" in str(caught.value) for name in known)
    with pytest.raises(UsageError, match=r"sources\.mine\.comparison=loose"):
        settings.load_of(PrepareConfig, None, ["sources.mine.path=x", "sources.mine.comparison=loose"])
