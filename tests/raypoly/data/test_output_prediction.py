"""LiveCodeBench's code execution and test output prediction: a call is shown, and its value is the answer."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import problem_of, read_problems, row_of
from raypoly.data.jsonl import load_jsonl
from raypoly.data.public_tests import set_apart
from raypoly.data.similar import find_duplicates, find_overlaps
from raypoly.data.templates import ChatTemplate, prompt_maker
from raypoly.planning.preflight import require_tests
from tests.raypoly.data.format_rows import EXECUTION, LCB, TEST_OUTPUT, Row, refusal
from tests.support.preparation_rows import write_rows


def test_a_program_and_its_call_are_shown_and_its_result_is_the_answer() -> None:
    problem = problem_of(EXECUTION)
    assert (problem.id, problem.tests) == ("sample_3", TestSuite("answer", "[2, 4]"))
    assert problem.metadata == {"difficulty": "easy", "date": "2023-06-18"}
    assert EXECUTION["code"] in problem.prompt
    assert "twice(values = [1, 2])" in problem.prompt
    assert problem.prompt.endswith("between [ANSWER] and [/ANSWER].\n")
    assert "[2, 4]" not in problem.prompt


def test_a_statement_and_a_call_are_shown_in_python_and_the_tests_output_is_the_answer() -> None:
    problem = problem_of(TEST_OUTPUT)
    assert (problem.id, problem.tests) == ("3001-4", TestSuite("answer", "False"))
    assert problem.metadata == {"difficulty": "easy", "title": "Any Twice", "date": "2023-12-09"}
    for part in (TEST_OUTPUT["question_content"], "def anyTwice(self", "anyTwice(['a', 'b'], 2)", "[ANSWER]"):
        assert part in problem.prompt
    assert "False" not in problem.prompt
    assert problem_of(TEST_OUTPUT | {"test": json.loads(TEST_OUTPUT["test"])}).tests == problem.tests


@pytest.mark.parametrize("value", ["null", "[true, [1.5, -2]]", '"it\'s \\"x\\""', '{"a": [null]}', "1" * 30])
def test_any_value_in_json_is_a_literal(value: str) -> None:
    case = [{"input": f"{value}\n{value}", "output": value, "testtype": "functional"}]
    problem = problem_of(TEST_OUTPUT | {"test": json.dumps(case)})
    assert ast.literal_eval(problem.tests.source) == json.loads(value)
    assert f"anyTwice({json.loads(value)!r}, {json.loads(value)!r})" in problem.prompt


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (EXECUTION | {"output": ""}, "output"),
        (EXECUTION | {"code": None}, "code"),
        (EXECUTION | {"id": None}, "id"),
        (TEST_OUTPUT | {"test": "[]"}, "test: 0 cases"),
        (TEST_OUTPUT | {"test": json.dumps(json.loads(TEST_OUTPUT["test"]) * 2)}, "test: 2 cases"),
        (TEST_OUTPUT | {"test": "no JSON"}, "test: not JSON"),
        (TEST_OUTPUT | {"test": '[{"input": "1"}]'}, "test: 0.output"),
        (TEST_OUTPUT | {"test": '[{"input": "x y", "output": "1"}]'}, "test: not JSON arguments"),
        (TEST_OUTPUT | {"test": '[{"input": "1", "output": "yes"}]'}, "a result in JSON"),
        (TEST_OUTPUT | {"test": json.dumps([{"input": "9" * 5000, "output": "1"}])}, "test:"),
    ],
)
def test_a_row_without_one_answer_is_refused(row: Row, reason: str) -> None:
    assert reason in refusal(row)


def test_they_are_read_from_json_lines_and_parquet_and_survive_as_own_rows(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [EXECUTION, TEST_OUTPUT])
    for number, row in enumerate((EXECUTION, TEST_OUTPUT)):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"{number}.parquet")
    lines = read_problems(tmp_path / "rows.jsonl").problems
    columns = read_problems(tmp_path / "0.parquet").problems + read_problems(tmp_path / "1.parquet").problems
    assert [replace(problem, source="") for problem in columns] == [replace(problem, source="") for problem in lines]
    assert [problem_of(row_of(problem), problem.source) for problem in lines] == lines
    assert [set_apart(problem, 3) for problem in lines] == lines


def test_questions_about_one_program_are_different_problems_and_copies_are_found() -> None:
    calls = [EXECUTION | {"id": f"sample_{n}", "input": f"twice(values = [{n}])"} for n in range(4)]
    tests = [json.dumps([{"input": f'["a"]\n{n}', "output": "true"}]) for n in range(4)]
    outputs = [TEST_OUTPUT | {"test_id": n, "test": test} for n, test in enumerate(tests)]
    problems = [problem_of(row) for row in (*calls, *outputs)]
    assert find_duplicates(problems) == []
    copy = replace(problem_of(calls[0]), id="copy", prompt=f"{problem_of(calls[0]).prompt}\n")
    assert [{pair.dropped.id, pair.kept.id} for pair in find_duplicates([*problems, copy])] == [{"copy", "sample_0"}]
    coded = problem_of(LCB | {"question_title": "Any Twice", "question_content": TEST_OUTPUT["question_content"]})
    assert find_overlaps(problems, [coded]) == []


def refused(problem: Problem, template: str) -> str:
    with pytest.raises(UsageError) as caught:
        prompt_maker(template, ChatTemplate("plain"))(problem)
    return str(caught.value)


def test_a_template_that_asks_for_a_program_is_refused_and_a_message_has_the_whole_question() -> None:
    problem = problem_of(EXECUTION)
    for template in ("base", "chat"):
        assert f"{template} asks for a program, and sample_3" in refused(problem, template)
    for template in ("statement", "message"):
        assert prompt_maker(template, ChatTemplate("plain"))(problem).prompt.strip() == problem.prompt.strip()

    def as_roles(messages: Any) -> str:
        return str([message["role"] for message in messages])

    assert prompt_maker("message", None, render=as_roles)(problem).prompt == "['user']"


def test_training_needs_no_programs_or_says_that_there_are_none(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [EXECUTION, TEST_OUTPUT, LCB])
    problems = load_jsonl(ProblemsConfig(source="jsonl", path=str(path), validation=0, test=0))

    def require(*words: str) -> None:
        require_tests(problems, load(None, list(words), lambda text: None))

    for reward in ("passed", "fraction"):
        require(f"reward.name={reward}", "objective.name=grpo")
    require("objective.name=outcome_exploration")
    require("judge.name=openai")
    with pytest.raises(UsageError, match="2 of 3 training problems are answered by a value, not a program") as caught:
        require("objective.name=diver")
    assert "needs statements" in str(caught.value)
    with pytest.raises(UsageError, match=r"set judge\.name=openai"):
        require("judge.name=structural")
