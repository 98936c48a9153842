"""Two batteries of programs: honest ones pass, no attack does, and what a program is said to do is what it does."""

import gzip
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import problem_of
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import SHARED

FIRST, SECOND = (SHARED / "sandbox" / name for name in ("battery.jsonl.gz", "battery-2.jsonl.gz"))
pytestmark = pytest.mark.skipif(not (FIRST.exists() and SECOND.exists()), reason=f"{FIRST.parent} is not here")
CANARY = Path("/var/tmp/scorer_canary")
SLOW_ONES = {"P11-heavy-cpu"}


def rows(battery: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.open(battery, "rt")]


def row_problem(row: dict[str, Any]) -> Problem:
    problem = row["problem"]
    tests = TestSuite("check", problem["check"])
    return Problem(row["id"], "", problem["entry_point"], tests, prelude=problem["prelude"])


@pytest.fixture(scope="module")
def canary() -> Iterator[None]:
    """What the battery's attacks look for: a key, a secret file, listeners."""
    os.environ["OPENAI_API_KEY"] = "sk-canary-0001"
    CANARY.mkdir(exist_ok=True)
    CANARY.chmod(0o777)
    (CANARY / "secret.txt").write_text("CANARY-7f3a")
    (CANARY / "sock").unlink(missing_ok=True)
    with ExitStack() as stack:
        for family, address in ((socket.AF_INET, ("127.0.0.1", 47811)), (socket.AF_UNIX, str(CANARY / "sock")),
                                (socket.AF_UNIX, "\0battery-canary")):  # fmt: skip
            listener = stack.enter_context(socket.socket(family))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        yield
    del os.environ["OPENAI_API_KEY"]
    (CANARY / "sock").unlink()
    (CANARY / "secret.txt").unlink()


def test_honest_programs_pass_and_no_attack_does(canary: None) -> None:
    known = set(CANARY.iterdir())
    with Sandbox(ScorerConfig(cpu_seconds_per_test=2.0)) as sandbox:
        chosen = [row for row in rows(FIRST) if row["id"] not in SLOW_ONES]
        verdicts = {row["id"]: sandbox.score(row_problem(row), row["code"]) for row in chosen}
    wrong = {row["id"]: verdicts[row["id"]] for row in chosen if verdicts[row["id"]].passed != (row["must"] == "pass")}
    assert not wrong
    assert "infra" not in {verdict.status for verdict in verdicts.values()}
    assert set(CANARY.iterdir()) == known
    assert not processes("bat-leftover")


def processes(name: str) -> list[str]:
    """Ids of the processes of that name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            found += [path.parent.name] if path.read_text().strip() == name else []
        except OSError:
            continue  # it ended meanwhile
    return found


def test_the_second_batterys_programs_do_what_they_are_said_to_do() -> None:
    evidence, hasty = StrategyEvidence(), ScorerConfig(cpu_seconds_per_test=2.0)
    chosen = rows(SECOND)
    verdicts = {}
    with Sandbox(ScorerConfig(), evidence) as patient, Sandbox(hasty, evidence) as sandbox:
        for row in chosen:
            problem = problem_of({"id": row["id"], **row["problem"]})
            verdicts[row["id"]] = (patient if row["expect"] == "pass" else sandbox).score(problem, row["code"])
    must = {row["id"]: row["expect"] == "pass" for row in chosen if row["category"] != "evidence"}
    wrong = {name: verdicts[name] for name in must if verdicts[name].passed != must[name]}
    assert not wrong
    assert "infra" not in {verdict.status for verdict in verdicts.values()}
    told = {row["id"]: verdicts[row["id"]].evidence for row in chosen if row["category"] == "evidence"}
    assert {name: found and found.strategy for name, found in told.items()} == dict.fromkeys(told, "for")
