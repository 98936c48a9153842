"""Rows of problems, and candidates, for tests of preparations."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from raypoly.core.values import Problem, TestSuite
from raypoly.data.preparing.candidates import Candidate, ProblemBuffer, SourceFacts

WORDS = (
    "rivers",
    "castles",
    "engines",
    "orchards",
    "lanterns",
    "violins",
    "glaciers",
    "harbours",
    "kettles",
    "meadows",
)


def problem_row(name: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """A row in LeetCodeDataset's format. Each `number` gives another statement."""
    what = WORDS[number % len(WORDS)]
    asked = f"Count all {what} that {number + 3} guests of the {what} guild saw before {what} closed."
    return {
        "task_id": name,
        "problem_description": asked,
        "starter_code": "class Solution:\n    def f(self, x: int) -> int:\n        ",
        "prompt": "",
        "entry_point": "Solution().f",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "completion": "class Solution:\n    def f(self, x):\n        return x + 1\n",
        **more,
    }


def write_rows(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    """Write rows as JSON lines. A string becomes a line unchanged."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in rows))
    return path


def candidate(name: str, prompt: str = "Say what you see in the picture.", **facts: Any) -> Candidate:
    problem = Problem(name, prompt, "f", TestSuite("check", "def check(candidate):\n    assert candidate(1) == 2\n"))
    return Candidate.of(problem, SourceFacts("mine", 1, **facts), ProblemBuffer())


def written_bytes(write: Callable[[Iterable[Candidate], IO[bytes]], None], candidates: Iterable[Candidate]) -> bytes:
    """The bytes that `write` writes for the candidates."""
    file = io.BytesIO()
    write(candidates, file)
    return file.getvalue()
