"""Programs that once ended the scoring of others, or were judged by what the check expected of somebody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.verifier.answers import answer_verdict
from raypoly.verifier.sandbox import Sandbox
from tests.raypoly.data.source_rows import CHECKER
from tests.support.small_problems import calls, check

DIGITS_OF_X = """
def check(candidate):
    for n in (3, 40):
        x, s = candidate(n), 0
        while x:
            s, x = s + x % 10, x // 10
        assert s == n
"""
"""Ends for a number that is not negative."""
EXPECTS_ERROR = """
def check(candidate):
    try:
        candidate(-1)
    except Exception:
        pass
    else:
        assert False
    assert candidate(4) == 2
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    limits = ScorerConfig(cpu_seconds_per_test=2.0, cpu_seconds_per_program=3.0)
    with Sandbox(limits) as sandbox:
        yield sandbox


@pytest.mark.parametrize("kind", ["raised", "tamper", "over"])
@pytest.mark.parametrize("word", ["10**5000", "[10**5000]", "b'x'", "None"])
def test_a_forged_message_of_other_than_words_is_an_error_of_that_program(
    sandbox: Sandbox, kind: str, word: str
) -> None:
    """Python writes no number of more than 4,300 digits as text: it ended the command, and again when given again."""
    code = f"import sys\ndef f(n):\n sys._getframe(1).f_locals['report']({kind!r}, {word}, 'x')\n return n"
    verdict = sandbox.score(calls(([1], 1)), code)
    assert (verdict.status, verdict.detail.rpartition(": ")[2]) == (
        "error",
        "the program wrote on the channel of its results",
    )
    assert sandbox.score(calls(([1], 1)), "def f(n): return n").passed


def test_a_first_message_that_is_too_long_is_refused_unread(sandbox: Sandbox) -> None:
    code = "import sys\nsys._getframe(1).f_locals['report']('ready', 'n' * (1 << 17))\ndef f(n): return n"
    assert sandbox.score(calls(([1], 1)), code).detail.endswith("the program wrote on the channel of its results")


@pytest.mark.parametrize("digits", ["0x" + "f" * 5000, "[0b" + "1" * 20_000 + "]", "-0x" + "f" * 5000])
def test_an_answer_of_too_many_digits_is_wrong(digits: str) -> None:
    assert answer_verdict(TestSuite("answer", "3"), digits).status == "wrong"
    assert answer_verdict(TestSuite("answer", digits), digits).passed


@pytest.mark.parametrize("sign", ["\U0001f600", "\x01", '"'])
def test_an_output_that_is_long_for_the_checker_is_wrong_and_no_fault_of_the_problem(
    sandbox: Sandbox, sign: str
) -> None:
    cases = json.dumps([{"input": "7\n", "output": "3 4\n"}])
    problem = Problem("sums", "", "", TestSuite("stdin", cases, checker=CHECKER))
    for count in (1_500_000, 2_000_000, 2_097_000):
        assert sandbox.score(problem, f"print({sign!r} * {count})").status == "wrong"
    assert sandbox.score(problem, "print(0, 7)").passed


def test_a_check_that_does_not_end_on_a_result_is_a_timeout_of_the_program() -> None:
    problem = check(DIGITS_OF_X)
    with Sandbox(ScorerConfig(cpu_seconds_per_test=1.0, cpu_seconds_per_program=1.0)) as hasty:
        verdict = hasty.score(problem, "def f(n): return -1")
        assert (verdict.status, verdict.detail.partition("did not end")[0][-10:]) == ("timeout", "the check ")
        assert hasty.score(problem, "def f(n): return int('9' * (n // 9) + str(n % 9)) if n > 9 else n").passed
        never = check("def check(candidate):\n    while True: pass")
        assert hasty.score(never, "def f(n): return -1").status == "infra"


@pytest.mark.parametrize(
    "code",
    [
        "import itertools\ndef f(n): return itertools.count() if n < 0 else 2",
        "def f(n):\n x = []\n for _ in range(5000): x = [x]\n return x if n < 0 else 2",
        "import sys\ndef f(n):\n if n < 0: sys._getframe(1).f_locals['report']('ok', 1, ((), {}), None)\n return 2",
        "import sys\ndef f(n):\n if n < 0: sys._getframe(1).f_locals['report']('ok', 1, 5, None)\n return 2",
    ],
)
def test_a_check_that_expects_an_exception_gets_none_of_ours(sandbox: Sandbox, code: str) -> None:
    """A result that has no form on the wire raised TypeError inside the check, which took it for the program's."""
    assert not sandbox.score(check(EXPECTS_ERROR), code).passed


@pytest.mark.parametrize(
    ("loop", "code"),
    [
        ("for k in range(8): assert candidate(list(range(100_000))) == 99_999", "def f(x): return max(x)"),
        ("for k in range(5): assert candidate('a' * 1_000_000) == 1_000_000", "def f(x): return len(x)"),
    ],
)
def test_large_arguments_do_not_count_as_results(sandbox: Sandbox, loop: str, code: str) -> None:
    problem = replace(check(f"def check(candidate):\n    {loop}"), id="large")
    assert sandbox.score(problem, code).passed
    again = "def f(x): return 'y' * 3_000_000"
    verdict = sandbox.score(check("def check(candidate):\n    for k in range(8): assert len(candidate(k)) > 9"), again)
    assert (verdict.status, "its results have more than 4 MiB" in verdict.detail) == ("error", True)
