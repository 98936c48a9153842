"""A prompt's parts: the statement, the code that it ends in, and the words that its source put around them.

    parts = split_prompt(problem)
    parts.head + parts.statement + parts.tail == problem.prompt
    parts.signature                                  # "class Solution:\\n    def twoSum(self, nums): "

Only the frames that raypoly's formats or LeetCodeDataset write are recognised. A prompt without one is all statement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from raypoly.core.values import Problem
from raypoly.data.formats.row_fields import ANSWER

STATEMENT = "statement"
"""Key of `Problem.metadata`: the statement within a prompt that a template made."""
_HEAD = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests.\n\n### Question:\n"
)
_LEADS = (
    "Complete this code:",
    "Please complete the following python code precisely:",
    "### Format: You will use the following starter code to write the solution to the problem and enclose your code "
    "within delimiters.",
)
_ENDS = (ANSWER.strip(), "### Answer: (use the provided format with backticks)")
_CODE = re.compile(
    r"\s*```python\n(?P<signature>.*?)\n?[ \t]*```\s*(?:" + "|".join(map(re.escape, _ENDS)) + r")?\s*\Z", re.DOTALL
)


@dataclass(frozen=True)
class PromptParts:
    head: str
    statement: str
    tail: str
    signature: str
    """The code to be completed, which is in the tail; empty where there is none."""


def split_prompt(problem: Problem) -> PromptParts:
    """The parts of a problem's prompt; the statement is stripped, and empty where the code says everything."""
    own = problem.metadata.get(STATEMENT)
    if own is not None:
        before, found, after = problem.prompt.partition(own)
        return PromptParts(before, own, after, "") if found else PromptParts("", "", problem.prompt, "")
    text = problem.prompt
    head = _HEAD if text.startswith(_HEAD) else ""
    end, signature = _code(text)
    if not signature:  # up to the sentence on how to answer
        bare = text.rstrip()
        end = next((len(bare) - len(last) for last in _ENDS if bare.endswith(last)), len(text))
    body = text[len(head) : end]
    statement = body.strip()
    start = len(head) + len(body) - len(body.lstrip())
    return PromptParts(text[:start], statement, text[start + len(statement) :], signature)


def _code(text: str) -> tuple[int, str]:
    """(Index of the sentence before the code to be completed, the code); (len(text), "") where there is none."""
    start, lead = max((text.rfind(lead), lead) for lead in _LEADS)
    found = _CODE.match(text, start + len(lead)) if start >= 0 else None
    return (start, found["signature"].rstrip()) if found else (len(text), "")
