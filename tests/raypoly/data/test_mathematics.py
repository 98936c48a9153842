"""Rows of mathematics become problems whose one answer is compared by value."""

from __future__ import annotations

from typing import Any

import pytest

from raypoly.core.values import TestSuite
from raypoly.data.formats import problem_of, row_of
from tests.raypoly.data.format_rows import refusal

GSM8K = {"question": "Ann has 3 apples, and buys 2?", "answer": "3+2=<<3+2=5>>5\nSo 5.\n#### 1,005"}
MATH = {
    "problem": "What is half?",
    "level": "Level 5",
    "type": "Algebra",
    "solution": "Not $\\boxed{1}$ but $\\boxed{\\frac{1}{\\sqrt{2}}}$.",
}
MATH_500 = MATH | {"answer": "\\frac{1}{2}", "subject": "Algebra", "level": 2, "unique_id": "test/algebra/7.json"}
AIME = {
    "id": 60,
    "problem": "Find it.",
    "solution": "...",
    "answer": "033",
    "url": "https://example.org",
    "year": "2024",
}
POLARIS = {"problem": "Find it, too.", "answer": "\\frac{7}{2}", "difficulty": "3/8"}
CAPITALS = {"ID": "2024-I-4", "Problem": "Find it.", "Solution": "...", "Answer": 116}
DAPO = {
    "data_source": "math_dapo",
    "prompt": [{"role": "user", "content": "Solve it. The last line should be of the form Answer: $Answer.\n\nWhat?"}],
    "ability": "MATH",
    "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a9b6eb4"},
}


@pytest.mark.parametrize(
    ("row", "name", "answer"),
    [
        (GSM8K, "", "1,005"),
        (MATH, "", "\\frac{1}{\\sqrt{2}}"),
        (MATH | {"solution": "It is \\boxed 2$."}, "", "2"),
        (MATH_500, "test/algebra/7.json", "\\frac{1}{2}"),
        (AIME, "60", "033"),
        (POLARIS, "", "\\frac{7}{2}"),
        (CAPITALS, "2024-I-4", "116"),
        (DAPO, "9a9b6eb4", "34"),
        (DAPO | {"prompt": "What?", "solution": "34"}, "9a9b6eb4", "34"),
    ],
)
def test_a_row_has_one_answer_and_its_prompt_says_where_to_put_it(row: dict[str, Any], name: str, answer: str) -> None:
    problem = problem_of(row)
    assert problem.tests == TestSuite("answer", answer, "math")
    assert problem.id == name or (not name and len(problem.id) == 16)
    asks = "Answer:" if isinstance(row.get("prompt"), list) else "\\boxed{}"
    assert asks in problem.prompt
    assert answer not in problem.prompt
    assert problem_of(row_of(problem)).tests == problem.tests


def test_level_and_subject_are_kept() -> None:
    assert problem_of(MATH).metadata == {"difficulty": "Level 5", "tags": "Algebra"}
    assert problem_of(POLARIS).metadata == {"difficulty": "3/8"}
    assert problem_of(MATH_500).metadata == {"difficulty": "2", "tags": "Algebra"}


def test_rows_without_an_answer_are_refused() -> None:
    assert "answer: no value" in refusal(MATH | {"solution": "It is \\boxed{2"})
    assert "answer: no value" in refusal(GSM8K | {"answer": "So 5.\n#### "})
    assert "problem: there is no question" in refusal(AIME | {"problem": " "})
