"""Where several outputs are right, the problem's checker decides, confined, and out of the program's reach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests
from raypoly.core.values import Problem, TestSuite
from raypoly.verifier.sandbox import Sandbox
from tests.raypoly.data.source_rows import CHECKER

CASES = json.dumps([{"input": "7\n", "output": "3 4\n"}, {"input": "9\n", "output": "4 5\n"}])
PROBLEM = Problem("two numbers", "", "", TestSuite("stdin", CASES, checker=CHECKER))
WRONG = "print(1, 1)"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig()) as sandbox:
        yield sandbox


def checked_by(source: str) -> Problem:
    return replace(PROBLEM, tests=replace(PROBLEM.tests, checker=source))


@pytest.mark.parametrize(
    ("code", "status", "passed"),
    [
        ("n = int(input())\nprint(n // 2, n - n // 2)", "passed", 2),
        ("print(0, int(input()))", "passed", 2),
        ("n = int(input())\nprint(*((3, 4) if n == 7 else (0, 0)))", "wrong", 1),
        (WRONG, "wrong", 0),
        ("print('no numbers')", "wrong", 0),
        ("pass", "wrong", 0),
        ("print(1)\nprint(1)\nprint(1)", "wrong", 0),
        ("print('1 ' * 3_000_000)", "wrong", 0),
        ("raise ValueError", "error", 0),
    ],
)
def test_an_output_is_right_if_it_is_expected_or_the_checker_takes_it(
    sandbox: Sandbox, code: str, status: str, passed: int
) -> None:
    verdict = sandbox.score(PROBLEM, code)
    assert (verdict.status, verdict.tests_passed) == (status, passed), verdict.detail


@pytest.mark.parametrize(
    "source", ["print(0)", "raise ValueError", "while True: pass", "(", "print('1, surely')", "import sys; sys.exit(1)"]
)
def test_a_checker_that_takes_no_output_is_the_problems_fault(
    sandbox: Sandbox, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raypoly.verifier.sandbox.script_run.CHECKER_SECONDS", 1.0)
    with pytest.raises(BrokenTests, match="checker of problem two numbers"):
        sandbox.score(checked_by(source), WRONG)


LEAVES = """
import os, sys
n = input()
try:
    {work}
except OSError:
    pass
print(1, 1)
"""


@pytest.mark.parametrize(
    "work",
    [
        "open('json.py', 'w').write('print(1); import os; os._exit(0)')",
        "open('checker.py', 'w').write('print(1)')",
        "[os.mkdir(f) for f in ('input.txt', 'correct_output.txt', 'solution_output.txt')]",
        "[os.symlink('/dev/null', f) for f in ('input.txt', 'correct_output.txt', 'solution_output.txt')]",
        "open('correct_output.txt', 'w').write('1 1'); os.chmod('correct_output.txt', 0)",
    ],
)
def test_what_a_program_leaves_behind_does_not_reach_the_checker(sandbox: Sandbox, work: str) -> None:
    assert sandbox.score(PROBLEM, LEAVES.format(work=work)).status == "wrong"


def test_what_is_expected_is_not_where_the_program_runs(sandbox: Sandbox) -> None:
    looks = "import os\nn = int(input())\nprint(*((1, n - 1) if not os.listdir() else (0, 0)))"
    assert sandbox.score(PROBLEM, looks).passed


def test_a_checker_is_part_of_what_a_suite_says() -> None:
    hashes = {checked_by(source).tests.hash for source in ("", "print(1)", "print(0)")}
    assert len(hashes) == 3
    assert checked_by("").tests.hash == TestSuite("stdin", CASES, "lines").hash
