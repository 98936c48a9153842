"""LeetCodeDataset's own solutions pass; `test_mutants.py` has what is nearly them."""

import gzip
import json
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import SHARED

FOLDER = SHARED / "data" / "leetcode"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} is not here")
NEEDS = "sortedcontainers"


def rows() -> list[dict[str, Any]]:
    files = sorted(FOLDER.glob("*.jsonl.gz"))
    return [json.loads(line) for file in files for line in gzip.open(file, "rt")]


def problem_of(row: dict[str, Any]) -> Problem:
    return Problem(row["task_id"], "", row["entry_point"], TestSuite("check", row["test"]), prelude=row["prompt"])


def test_reference_solutions_pass() -> None:
    with Sandbox(ScorerConfig(), evidence=False) as sandbox:
        verdicts = {row["task_id"]: sandbox.score(problem_of(row), row["completion"]) for row in rows()[::10]}
    failed = {name: verdict for name, verdict in verdicts.items() if not verdict.passed}
    assert not {name: verdict for name, verdict in failed.items() if NEEDS not in verdict.detail}
