"""What the judge reads of a problem, and what a group costs in text."""

import gzip
import json
import random
from itertools import islice
from statistics import mean

import pytest

from raypoly.data.formats import problem_of
from raypoly.strategies.judge.openai.judge_prompt import (
    INSTRUCTIONS,
    essential_statement,
    render_messages,
    shorten_statement,
)
from raypoly.strategies.judge.program_transforms import CHANGES, keywords
from raypoly.strategies.live_code.live_program import canonical_text, live_program
from raypoly.verifier.code_extraction import extract_code
from tests.support.small_problems import SHARED

LEETCODE = SHARED / "data/leetcode/LeetCodeDataset-v0.2.0-train.jsonl.gz"
TASK = "Given an array of integers and a target, return the two indices whose values add up to it."
SAMPLES = """
Example 1:

Input: nums = [2,7], target = 9
Output: [0,1]
Explanation:
The sum of 2 and 7 is 9: so it is.

Constraints:

2 <= nums.length <= 100
"""


@pytest.mark.parametrize(
    "text",
    [
        TASK,
        TASK + SAMPLES,
        TASK + "\n\xa0\n" + SAMPLES,
        f"An expert.\n### Question:\n{TASK}\n{SAMPLES}\n### Format: Use this.\n```python\nclass A:\n```\n### Answer:",
        f"{TASK}\n\nPlease complete the following python code precisely:\n```python\nclass Solution:\n```",
        TASK + SAMPLES.replace("Example 1:", "**Example 1:**").replace("Constraints:", "**Constraints:**"),
    ],
)  # fmt: skip
def test_samples_bounds_and_code_to_complete_are_left_out(text: str) -> None:
    assert essential_statement(text) == TASK


@pytest.mark.parametrize(
    "more", ["Note: an index may be used once.", "Follow up: can you do it in one pass?", "An edge is [u, v]: one way."]
)
def test_what_says_more_of_the_task_stays(more: str) -> None:
    assert more in essential_statement(f"{TASK}\n{more}\n{SAMPLES}")


def test_a_note_behind_the_samples_stays() -> None:
    assert (
        essential_statement(f"{TASK}{SAMPLES}\nNote: indices count from 0.") == f"{TASK}\nNote: indices count from 0."
    )


@pytest.mark.parametrize("text", ["", "Add.", "Example 1:\nInput: 1\nOutput: 2\n", "```\n" + "x" * 100])
def test_a_statement_of_which_nothing_would_remain_is_shown_as_it_is(text: str) -> None:
    assert essential_statement(text) == text


def test_the_raw_view_shows_all_of_a_problem_up_to_its_limit() -> None:
    assert shorten_statement(TASK + SAMPLES, "raw", 10_000) == TASK + SAMPLES
    assert shorten_statement(TASK + SAMPLES, "canonical", 10_000) == TASK
    assert len(shorten_statement(TASK * 40, "canonical", 300)) < 400


@pytest.mark.skipif(not LEETCODE.exists(), reason="no LeetCode data beside the repository")
def test_a_group_takes_less_than_half_of_its_programs_as_written() -> None:
    """By characters, which are kind to the raw side: a canonical text has fewer to a token."""
    shares = []
    with gzip.open(LEETCODE, "rt") as lines:
        for line in islice(lines, 0, 600, 30):
            row = json.loads(line)
            problem = problem_of(row)
            two = [problem.solution, extract_code(problem, row["response"]) or ""]
            kept = keywords(row["test"])
            names = ("renaming", "comments", "reformatting")
            copies = [CHANGES[name](text, random.Random(7), kept) for text in two for name in names]
            shown = sorted({canonical_text(live_program(text, problem.entry_point)) for text in two + copies})
            assert len(shown) <= 2
            question = shorten_statement(problem.prompt, "canonical", 1000)
            sent, raw = (
                render_messages(INSTRUCTIONS, question, shown),
                render_messages(INSTRUCTIONS, problem.prompt, two + copies),
            )
            shares.append(len(json.dumps(sent)) / len(json.dumps(raw)))
    assert mean(shares) < 0.45
