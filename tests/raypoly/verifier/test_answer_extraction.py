"""The answer of a response is found as docs/data.md says, in time that grows with the response."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raypoly.core.values import Problem, TestSuite
from raypoly.verifier.code_extraction import extract_code

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
