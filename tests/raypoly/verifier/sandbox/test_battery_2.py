"""The second battery: honest programs pass, no attack does, and what a program is said to do is what it does."""

import gzip
import json
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem
from raypoly.data.formats import problem_of
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import SHARED

BATTERY = SHARED / "sandbox" / "battery-2.jsonl.gz"
pytestmark = pytest.mark.skipif(not BATTERY.exists(), reason=f"{BATTERY} is not here")


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.open(BATTERY, "rt")] if BATTERY.exists() else []


def row_problem(row: dict[str, Any]) -> Problem:
    return problem_of({"id": row["id"], **row["problem"]})


def test_honest_programs_pass_and_no_attack_does() -> None:
    with Sandbox(ScorerConfig()) as patient, Sandbox(ScorerConfig(cpu_seconds_per_test=2.0)) as sandbox:
        verdicts = {
            row["id"]: (patient if row["expect"] == "pass" else sandbox).score(row_problem(row), row["code"])
            for row in rows()
        }
    must = {row["id"]: row["expect"] == "pass" for row in rows() if row["category"] != "evidence"}
    wrong = {name: verdicts[name] for name in must if verdicts[name].passed != must[name]}
    assert not wrong
    assert "infra" not in {verdict.status for verdict in verdicts.values()}
    told = {row["id"]: verdicts[row["id"]].evidence for row in rows() if row["category"] == "evidence"}
    assert {name: found and found.strategy for name, found in told.items()} == dict.fromkeys(told, "for")
