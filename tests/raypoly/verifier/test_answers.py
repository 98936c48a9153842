"""An answer is found as docs/data.md says, in linear time; it is right if it says the right value; nothing is run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raypoly.algorithms.objectives.behaviour import outcome_of
from raypoly.core.config import ScorerConfig
from raypoly.core.values import Failure, Problem, TestSuite, Verdict
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier import LocalPool
from raypoly.verifier.answers import answer_verdict
from raypoly.verifier.code_extraction import extract_code


def passes(expected: str, answer: str) -> bool:
    return answer_verdict(TestSuite("answer", expected), answer).passed


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("[1, 2]", "[1,2]"),
        ("[1, 2]", "assert f(x = [2]) == [1,2]"),
        ("[1, 2]", "assert f('a == b') == [1,  # one\n 2], 'message'"),
        ("[1, 2]", "assert f(1) == [1, 2]\nbecause it is so"),
        ("[1, 2]", "f(3) == [1, 2]"),
        ("[1, 2]", "got = f(3)\nassert got == [1, 2]"),
        ("3", "3.0"),
        ("-1.5", " -1.5 "),
        ("'a == b'", '"a == b"'),
        ("{'b': 1, 'a': None}", "{'a': None, 'b': 1}"),
        ("{1, 2}", "{2, 1}"),
        ("nan", "nan"),
        ("Counter({1: 2})", "assert f(1) == Counter({1: 2})"),
        ("deque([1])", " deque([1])\n"),
        ("9" * 5000, "9" * 5000),
        ("[" * 300 + "]" * 300, "[" * 300 + "]" * 300),
    ],
)
def test_the_right_value_passes_however_it_is_written(expected: str, answer: str) -> None:
    assert passes(expected, answer)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("[1, 2]", "(1, 2)"),
        ("[1, 2]", "[1, 2, 3]"),
        ("3", "'3'"),
        ("'abc'", "abc"),
        ("2", "1 + 1"),
        ("2", "assert f(1) == 1 + 1"),
        ("2", "assert f(1) != 2"),
        ("2", "assert f(1) == 2 == 3"),
        ("2", "assert f(1) == ??"),
        ("2", "assert f(1)"),
        ("2", "the answer is 2"),
        ("2", "[2][0]"),
        ("True", "true"),
        ("2", "x = 2"),
        ("2", "{[]: 2}"),
        ("2", "\0"),
        ("2", "\ud800"),
        ("2", "-" * 100_000 + "2"),
        ("2", "1" + "+1" * 100_000),
        ("2", "(" * 100_000),
        ("f(1) == 2", "2"),
    ],
)
def test_anything_else_is_wrong(expected: str, answer: str) -> None:
    assert not passes(expected, answer)


def test_nothing_is_evaluated(tmp_path: Path) -> None:
    made = tmp_path / "made"
    writes = f"open({str(made)!r}, 'w')"
    for answer in (writes, f"assert f(1) == {writes}", f'f"{{{writes}}}"', f"assert {writes} == 2"):
        assert passes("2", answer) == answer.endswith("2")
    assert not made.exists()


def test_the_verdict_says_what_was_answered() -> None:
    assert answer_verdict(TestSuite("answer", "[1, 2]"), "[1,2]") == Verdict("passed", 1, 1, 0.0)
    wrong = answer_verdict(TestSuite("answer", "[1, 2]"), "assert f(3) == [1,3]")
    assert (wrong.status, wrong.tests_passed, wrong.tests_total, wrong.evidence) == ("wrong", 0, 1, None)
    assert wrong.failure == Failure(1, "", "[1, 3]", "[1, 2]")
    assert wrong.detail == "the answer is [1, 3], expected [1, 2]"
    other, same = (answer_verdict(TestSuite("answer", "[1, 2]"), text) for text in ("[1, 4]", " [1,  3]"))
    assert outcome_of(wrong) == outcome_of(same) != outcome_of(other)
    assert len(answer_verdict(TestSuite("answer", "2"), "x" * 100_000).detail) <= 300


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("1 == 7", "wrong"),
        ("assert 7 == 7", "wrong"),
        ("assert [1] == 7, 'so'", "wrong"),
        ("assert len('1234567') == 7", "passed"),
        ("assert f(1) == 9\nassert f(2) == 7", "no_code"),
        ("assert f(1) == 7\nassert f(1) == 8\nOne of them.", "no_code"),
        ("f(1) == 7\nf(2) == 8", "no_code"),
        ("7\n8", "no_code"),
        ("assert f(1) == 7\nassert f(1) == 7.0\nassert f(1) > 2", "passed"),
    ],
)
def test_a_claim_is_about_a_call_and_two_different_ones_are_none(answer: str, status: str) -> None:
    assert answer_verdict(TestSuite("answer", "7"), answer).status == status


def keys(count: int, form: str = "{}") -> str:
    return ", ".join(form.format(n * (2**61 - 1)) for n in range(1, count))


@pytest.mark.parametrize(
    "answer",
    [
        f"{{{keys(40_000)}}}",
        f"assert f(1) == {{{keys(40_000)}}}",
        f"[{{{keys(2900)}}}]",
        f"{{{keys(2500, '{}: 0')}}}",
        f"{{{keys(2500, '(0, {})')}}}",
        f"{{{keys(2900)}}} == 7",
        "assert f(1) == 7\n" * 3000 + "assert f(1) == 8",
        "[" + "{1}, " * 10_000 + "]",
    ],
    ids=len,
)
def test_no_answer_stalls_its_reader(answer: str) -> None:
    start = time.process_time()
    assert answer_verdict(TestSuite("answer", "7"), answer).status in ("wrong", "no_code")
    assert time.process_time() - start < 3


def test_a_large_set_is_an_answer() -> None:
    for value in (set(range(3000)), {(n, -n) for n in range(3000)}, {n / 8: [n] for n in range(3000)}):
        assert passes(repr(value), repr(value))
    assert passes(f"{{{keys(50)}}}", f"{{{keys(50)}}}")
    assert passes("{'a'}", "{" + "'a', " * 200 + "}")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda it: st.lists(it) | st.tuples(it, it)))
def test_every_plain_value_is_its_own_answer(value: object) -> None:
    assert passes(repr(value), repr(value))
    assert passes(repr(value), f"assert f({value!r}) == {value!r}")
    assert not passes(repr([value]), repr(value))


def test_a_response_goes_through_the_scorer_to_its_verdict() -> None:
    problem = Problem("p", "What is 1 + 2?", "", TestSuite("answer", "3"), solution="never run")
    responses = ["[ANSWER] 3 [/ANSWER]", "It is\n```\n4\n```", "", "[ANSWER] 3 [/ANSWER]"]
    with LocalPool(ScorerConfig(workers=1), StrategyEvidence()) as pool:
        verdicts = list(pool.score((problem, extract_code(problem, response)) for response in responses))
    assert [verdict.status for verdict in verdicts] == ["passed", "wrong", "no_code", "passed"]
    assert verdicts[2].detail == "no answer in the response"
    assert all(verdict.evidence is None and verdict.repeatable for verdict in verdicts)


PROBLEM = Problem("p", "", "", TestSuite("answer", "3"))


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("So it is\n[ANSWER]\n3\n[/ANSWER]\nDone.", "3"),
        ("[ANSWER]assert f(2) == 3[/ANSWER]", "assert f(2) == 3"),
        ("[ANSWER] 2 [/ANSWER] No: [ANSWER] 3 [/ANSWER]", "3"),
        ("[ANSWER] 3 [/ANSWER] [ANSWER] [/ANSWER]", "3"),
        ("[ANSWER] [1,\n 2]\n", "[1,\n 2]"),
        ("assert f(2) == 3\n[/ANSWER]\n\nHere is a Python program: ...", "assert f(2) == 3"),
        ("3\n[/ANSWER]\n[/ANSWER]", "3"),
        ("[ANSWER]\n```python\nassert f(2) == 3\n```\n[/ANSWER]", "assert f(2) == 3"),
        ("[ANSWER]\n```\n3\n```\n[/ANSWER]", "3"),
        ("assert f(1) == 2\nand then\n  assert f(2) == 3", "assert f(2) == 3"),
        ("So:\n  assert f(1) == 2\n assert f(2) == 3\n\nDone", "assert f(1) == 2\nassert f(2) == 3"),
        ("assert f(2) == [\n    1,\n]\n\nI hope so.", "assert f(2) == [\n    1,\n]"),
        ("```python\nassert(f(2) == 3)\n```\nDone.", "assert(f(2) == 3)"),
        ("```python\ndef f(n): pass\n```\nIt returns:\n```\n3\n```\nDone.", "3"),
        ("```\n3\n```\n```\n\n```", "3"),
        ("```\n[1,\n 2]", "[1,\n 2]"),
        ("It adds one.\n\n3\n\n", "3"),
        ("It adds one.\r\n**`3`**\r\n", "3"),
        ("<think>\n[ANSWER] 2 [/ANSWER]\n</think>\n3", "3"),
    ],
)
def test_the_answer_is_found(response: str, answer: str) -> None:
    assert extract_code(PROBLEM, response) == answer


@pytest.mark.parametrize("response", ["", " \n ", "[ANSWER]\n[/ANSWER]", "[ANSWER]", "<think>\n3", "```\n```", "**"])
def test_a_response_without_one_has_none(response: str) -> None:
    assert extract_code(PROBLEM, response) is None


@given(st.text() | st.lists(st.sampled_from(["[ANSWER]", "[/ANSWER]", "```", "\n", "assert ", "3", " "])).map("".join))
def test_whatever_is_answered_it_is_a_text_of_the_response_or_nothing(response: str) -> None:
    answer = extract_code(PROBLEM, response)
    assert answer is None or answer.strip() == answer != ""


@pytest.mark.parametrize("piece", ["[ANSWER]", "[/ANSWER]", "```\n", "assert \n", "[", "\n", "```\n\n"])
def test_a_long_response_is_read_at_once(piece: str) -> None:
    start = time.process_time()
    extract_code(PROBLEM, piece * (1_000_000 // len(piece)))
    assert time.process_time() - start < 5
