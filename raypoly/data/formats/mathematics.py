"""Problems of mathematics: GSM8K, MATH, AIME, POLARIS and DAPO-Math-17k. Each has one answer, compared by value.

What is right is what follows `####` in GSM8K's `answer`, what `\\boxed{}` holds at the end of MATH's `solution`, or a
column of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.apps import content_id
from raypoly.data.formats.row_fields import OptionalIdentifier, SourceRow, Text

ASKED = "Put the final answer in \\boxed{}.\n"
_MARK = "\n#### "
_LONGEST = 1000
_BOX = "\\boxed"
_OF_CODE = {"tests", "test_cases", "entry_point", "input_output", "verification_info", "reward_model", "ground_truth"}
_SAYS_HOW = ("Answer:", "####", "\\boxed")


class _Row(SourceRow):
    unique_id: OptionalIdentifier = ""
    id: OptionalIdentifier = ""
    index: OptionalIdentifier = ""
    asked: Text = ""
    answer: OptionalIdentifier = ""


def recognises_gsm8k(row: Mapping[str, Any]) -> bool:
    return "question" in row and isinstance(row.get("answer"), str) and _MARK in f"\n{row['answer']}"


def to_problem_gsm8k(row: Mapping[str, Any]) -> Problem:
    answer = f"\n{row['answer']}".rpartition(_MARK)[2]
    return _problem({"id": row.get("id"), "asked": row["question"], "answer": answer})


def recognises_boxed(row: Mapping[str, Any]) -> bool:
    """MATH, MATH-500, AIME, POLARIS; some copies write their columns with capitals."""
    names = {str(name).lower() for name in row}
    is_boxed = "\\boxed" in str(row.get("solution"))
    return "problem" in names and ("answer" in names or is_boxed) and not names & _OF_CODE


def to_problem_boxed(row: Mapping[str, Any]) -> Problem:
    it = {str(name).lower(): value for name, value in row.items()}
    answer = it.get("answer")
    if answer in (None, ""):
        answer = last_boxed(str(it.get("solution"))) or ""
    level = it.get("level", it.get("difficulty"))  # of POLARIS a pass rate, such as 3/8
    about = {
        "difficulty": None if level is None else str(level),
        "tags": [it.get("subject") or it.get("type")],
        "url": it.get("url"),
    }
    names = {"unique_id": it.get("unique_id"), "id": it.get("id")}
    return _problem({**about, **names, "asked": it["problem"], "answer": answer})


def recognises_dapo(row: Mapping[str, Any]) -> bool:
    return "reward_model" in row and str(row.get("ability")).lower() == "math"


def to_problem_dapo(row: Mapping[str, Any]) -> Problem:
    """Of a prompt that says how to answer, as DAPO's own rows do, nothing is changed."""
    prompt, beside = row.get("prompt"), row.get("extra_info")
    last = prompt[-1].get("content") if isinstance(prompt, list) and prompt else prompt
    held = row["reward_model"]
    answer = held.get("ground_truth") if isinstance(held, Mapping) else None
    index = beside.get("index") if isinstance(beside, Mapping) else None
    return _problem({"index": index, "asked": last, "answer": answer})


def last_boxed(text: str) -> str | None:
    """What the last `\\boxed{...}`, or `\\boxed 2`, holds; empty where there is none, None where its brace is never
    closed."""
    start = text.rfind(_BOX)
    rest = text[start + len(_BOX) :].lstrip() if start >= 0 else ""
    if not rest.startswith("{"):
        return re.split(r"[\s$]", rest, maxsplit=1)[0]
    end = next((place for place, depth in brace_depths(rest) if depth == 0), None)
    return None if end is None else rest[1:end].strip()


def brace_depths(text: str) -> Iterator[tuple[int, int]]:
    """Where each brace stands, and how many are open after it; `\\{` is none."""
    depth = 0
    for brace in re.finditer(r"\\[{}]|([{}])", text):
        if brace[1]:
            depth += 1 if brace[1] == "{" else -1
            yield brace.start(), depth


def _problem(columns: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(columns)
    answer = it.answer.strip()
    if not answer or len(answer) > _LONGEST:
        raise ValueError(f"answer: no value of 1 to {_LONGEST} characters")
    asked = it.asked.strip()
    if not asked:
        raise ValueError("problem: there is no question")
    suite = TestSuite("answer", answer, "math")
    prompt = asked if any(word in asked for word in _SAYS_HOW) else f"{asked}\n\n{ASKED}"
    return it.make_problem(it.unique_id or it.id or it.index or content_id(asked, suite), prompt, suite)
