"""Scoring as a library call, with sandboxes of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite, Verdict
from raypoly.verifier import GivenProgram, LocalPool, score, validate
from tests.support.program_files import BROKEN, LOOP, add_problem, descendants, right_code, still_running

QUICK = ScorerConfig(workers=2, cpu_seconds_per_test=1.0)
BROKEN_PROBLEM = Problem("broken", "", "f", TestSuite("check", BROKEN["tests"]["source"]), solution="def f(): return 1")


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(QUICK) as pool:
        yield pool


def test_verdicts_come_in_order_and_each_is_heard() -> None:
    codes = [right_code(0), "def add(a, b): return 3", None, "def add(:", right_code(1)]
    heard: list[tuple[str | int, Verdict]] = []
    verdicts = score(
        [add_problem()],
        [GivenProgram(number, "add", code) for number, code in enumerate(codes)],
        QUICK,
        on_verdict=lambda program, verdict: heard.append((program.id, verdict)),
    )
    assert [verdict.status for verdict in verdicts] == ["passed", "wrong", "no_code", "error", "passed"]
    assert heard == list(enumerate(verdicts))


def test_a_slow_program_holds_up_no_other(pool: LocalPool) -> None:
    before = pool.done
    verdicts = pool.score((add_problem(), code) for code in [LOOP, *map(right_code, range(10))])
    assert next(verdicts).status == "timeout"
    assert pool.done > before + 1
    assert {verdict.status for verdict in verdicts} == {"passed"}


def test_programs_are_drawn_as_they_are_needed(pool: LocalPool) -> None:
    drawn = 0

    def endless() -> Iterator[tuple[Problem, str]]:
        nonlocal drawn
        while True:
            drawn += 1
            yield add_problem(), right_code(drawn % 5)

    verdicts = pool.score(endless())
    for _ in range(10_000):
        assert next(verdicts).passed
    assert drawn < 20_000


def test_killed_zygotes_change_no_verdict(pool: LocalPool) -> None:
    codes = [right_code(number) if number % 2 else f"def add(a, b): return {number}" for number in range(60)]
    statuses = []
    for number, verdict in enumerate(pool.score((add_problem(problem_id="killed"), code) for code in codes)):
        statuses.append(verdict.status)
        if number in (5, 25):
            for pid in descendants(os.getpid(), generations=1):
                os.kill(pid, signal.SIGKILL)
    assert statuses == ["passed" if number % 2 else "wrong" for number in range(60)]


def test_a_known_solution_sets_the_time_limit() -> None:
    patient = QUICK.model_copy(update={"cpu_seconds_per_test": 30.0})
    (verdict,) = score([add_problem(solution=right_code(0))], [GivenProgram("loop", "add", LOOP)], patient)
    assert verdict.status == "timeout"
    assert verdict.cpu_seconds < 10


def test_tests_that_can_not_be_run_are_nobodys_verdict() -> None:
    verdicts = score(
        [BROKEN_PROBLEM], [GivenProgram(0, "broken", "def f(): return 1"), GivenProgram(1, "broken", "x")], QUICK
    )
    assert [verdict.status for verdict in verdicts] == ["infra", "infra"]
    assert all(verdict.detail.startswith("the tests can't be run: ") for verdict in verdicts)


def test_validation_tells_the_usable_from_the_rest() -> None:
    problems = [
        add_problem(right_code(0), "right"),
        add_problem("def add(a, b): return 0", "wrong"),
        add_problem(problem_id="none"),
        BROKEN_PROBLEM,
    ]
    right, wrong, none, broken = validate(problems, QUICK, calibrate=True)
    assert (right.reason, right.excluded) == ("", False)
    assert right.problem.reference_seconds is not None
    assert right.problem.reference_seconds > 0
    assert (wrong.status, wrong.excluded) == ("wrong", True)
    assert (none.status, none.reason, none.excluded) == ("unchecked", "no solution to check it by", False)
    assert (broken.status, broken.excluded) == ("broken", True)


def test_an_unknown_problem_and_an_id_given_twice_are_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="problem 'sub', which is not there"):
        score([add_problem()], [GivenProgram("a", "sub", None)], QUICK)
    with pytest.raises(UsageError, match="Two problems have the id 'add'"):
        score([add_problem(), add_problem(right_code(0))], [], QUICK)


def test_a_closed_pool_leaves_no_process_not_even_of_a_looping_program() -> None:
    before = set(descendants(os.getpid()))
    with LocalPool(ScorerConfig(workers=2, cpu_seconds_per_test=60)) as pool:
        verdicts = pool.score([(add_problem(), right_code(0)), (add_problem(), LOOP), (add_problem(), LOOP + "\n")])
        next(verdicts)
        new = {pid: begun for pid, begun in descendants(os.getpid()).items() if pid not in before}
        assert len(new) >= 2
    assert still_running(new) == []
