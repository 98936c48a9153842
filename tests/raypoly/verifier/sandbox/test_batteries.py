"""Batteries of programs, and cases of public bug reports: honest ones pass, no attack does.

What a program is said to do is what it does.
"""

import gzip
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import problem_of, program_of
from raypoly.data.formats.long_integers import loads
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.code_extraction import extract_code
from raypoly.verifier.sandbox import Sandbox
from tests.support.small_problems import SHARED

FIRST, SECOND, THIRD = (SHARED / "sandbox" / f"battery{number}.jsonl.gz" for number in ("", "-2", "-3"))
CASES = SHARED / "cases"
pytestmark = pytest.mark.skipif(
    not all(path.exists() for path in (FIRST, SECOND, THIRD, CASES)),
    reason=f"{SHARED}, with its batteries, is not here",
)
CANARY = Path("/var/tmp/scorer_canary")
SLOW_ONES = {"P11-heavy-cpu"}
DECIDED_OTHERWISE = {
    "T071-answer-bool-int": "an answer is compared as Python compares: True is 1",
    "T087-answer-complex": "an answer is compared as Python compares: 1 + 0j is 1",
    "U007-scipy": "a library that is not offered",
    "U008-networkx": "a library that is not offered, as case 03 says",
    "V002-sysinfo-load": "the machine's load is a side channel, which is not promised away",
    "V012-fnotify-sigio": "signals of its own files reach itself alone",
    "V013-lease": "a lease on a file of its own holds up nobody",
}
"""Rows of the third battery whose verdict is another, and why."""
if sys.version_info < (3, 12):
    DECIDED_OTHERWISE["U003-type-statement"] = "syntax of Python 3.12"
    DECIDED_OTHERWISE["U016-asserts-typing"] = "a name of Python 3.12"
CASES_DECIDED_OTHERWISE = {
    "04 yes-case": "letters of another case are right by `tokens` alone, as Z041 of the third battery says",
    "08 solution of apply": "a lambda can't be handed over: the problem is broken",
}


def rows(battery: Path) -> list[dict[str, Any]]:
    return [loads(line) for line in gzip.open(battery, "rt")]


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
            if row["category"] == "evidence":  # asked as puzzles, which are told apart by construct
                problem = replace(problem, answer="completion")
            verdicts[row["id"]] = (patient if row["expect"] == "pass" else sandbox).score(problem, row["code"])
    must = {row["id"]: row["expect"] == "pass" for row in chosen if row["category"] != "evidence"}
    wrong = {name: verdicts[name] for name in must if verdicts[name].passed != must[name]}
    assert not wrong
    assert "infra" not in {verdict.status for verdict in verdicts.values()}
    told = {row["id"]: verdicts[row["id"]].evidence for row in chosen if row["category"] == "evidence"}
    assert {name: found and found.strategy for name, found in told.items()} == dict.fromkeys(told, "for")


def test_the_third_batterys_programs_get_the_verdicts_that_they_should(canary: None) -> None:
    # the strategies of its programs (`strategy`) are for the tests of strategies
    chosen = [row for row in rows(THIRD) if row["category"] != "strategy"]
    hasty = ScorerConfig(cpu_seconds_per_test=2.0, cpu_seconds_per_program=6.0)
    verdicts = {}
    with Sandbox(ScorerConfig()) as patient, Sandbox(hasty) as sandbox:
        for row in chosen:
            judge = patient if row["expect"] == "pass" else sandbox
            verdicts[row["id"]] = status(judge, problem_of({"id": row["id"], **row["problem"]}), row["code"])
    must = {row["id"]: row["expect"] == "pass" for row in chosen}
    wrong = {name for name in must if (verdicts[name] == "passed") != must[name]}
    assert {name: verdicts[name] for name in wrong - DECIDED_OTHERWISE.keys()} == {}
    assert must.keys() & DECIDED_OTHERWISE.keys() <= wrong, "decided as the battery does, after all"
    assert "infra" not in verdicts.values()


def status(sandbox: Sandbox, problem: Problem, code: str | None) -> str:
    try:
        return sandbox.score(problem, code).status
    except BrokenTests:
        return "broken"


def test_the_responses_and_programs_of_public_bug_reports_get_the_verdicts_that_they_should() -> None:
    wrong = {}
    with Sandbox(ScorerConfig()) as sandbox:
        for path in sorted(CASES.glob("*.json")):
            case = loads(path.read_text())
            if not case.keys() & {"programs", "validate"}:
                continue
            problems = {each.id: each for each in map(problem_of, case.get("problems") or [case["problem"]])}
            for row in case.get("programs", ()):
                problem = problems[row["problem_id"]]
                code = row["code"] if "code" in row else extract_code(problem, row["response"])
                found = status(sandbox, problem, code if code is None else program_of(problem, code))
                if found not in ([row["expect"]] if isinstance(row["expect"], str) else row["expect"]):
                    wrong[f"{path.name[:2]} {row['id']}"] = found
            for problem in problems.values() if case.get("validate") else ():
                found = status(sandbox, problem, problem.solution)
                if found != "passed":
                    wrong[f"{path.name[:2]} solution of {problem.id}"] = found
    assert {name: found for name, found in wrong.items() if name not in CASES_DECIDED_OTHERWISE} == {}
