"""Who runs what when."""

from __future__ import annotations

import pytest

from raypoly.errors import SandboxError
from raypoly.scoring.program_queue import RETRIES, ProgramQueue
from raypoly.values import Verdict
from tests.support.program_files import add_problem, right_code

PASSED = Verdict("passed", 2, 2, 0.1)
BY_THE_CLOCK = Verdict("timeout", 0, 2, 6.0, repeatable=False)


def test_the_same_program_runs_once_while_it_waits_and_after() -> None:
    jobs = ProgramQueue(workers=2, calibrate=False)
    problem = add_problem()
    first, second = jobs.put(problem, "code"), jobs.put(problem, "code")
    assert jobs.take(0) is first
    jobs.finish(first, PASSED)
    assert jobs.wait(second) is PASSED
    assert jobs.wait(jobs.put(problem, "code")) is PASSED
    assert (jobs.done, jobs.passed) == (3, 3)


def test_the_same_program_of_another_problem_runs_by_itself() -> None:
    jobs = ProgramQueue(workers=1, calibrate=False)
    first, second = jobs.put(add_problem(), "code"), jobs.put(add_problem(problem_id="other"), "code")
    assert [jobs.take(0), jobs.take(0)] == [first, second]


def test_a_verdict_of_the_moment_is_nobody_elses() -> None:
    jobs = ProgramQueue(workers=1, calibrate=False)
    problem = add_problem()
    first, second = jobs.put(problem, "code"), jobs.put(problem, "code")
    jobs.take(0)
    jobs.finish(first, BY_THE_CLOCK)
    assert second.verdict is None
    assert jobs.take(0) is second
    third = jobs.put(problem, "code")
    assert jobs.take(0) is third


def test_one_worker_calibrates_while_another_runs_other_problems() -> None:
    jobs = ProgramQueue(workers=2, calibrate=True)
    solved, plain = add_problem(solution=right_code(0)), add_problem(problem_id="plain")
    first, second, other = jobs.put(solved, "a"), jobs.put(solved, "b"), jobs.put(plain, "c")
    assert jobs.take(0) is first
    assert first.calibrates
    assert jobs.take(1) is other
    jobs.settle(first.known, 0.25)
    assert jobs.take(1) is second
    assert not second.calibrates
    assert jobs.reference_seconds(solved) == 0.25


def test_a_calibration_that_failed_falls_to_the_next_taker() -> None:
    jobs = ProgramQueue(workers=2, calibrate=True)
    first = jobs.put(add_problem(solution=right_code(0)), "a")
    jobs.take(0)
    jobs.release(first.known)
    jobs.again(first, 0, "the zygote is gone")
    assert jobs.take(1) is first
    assert first.calibrates


def test_what_the_sandbox_failed_at_goes_to_another_worker_and_at_last_surfaces() -> None:
    jobs = ProgramQueue(workers=2, calibrate=False)
    failed, behind = jobs.put(add_problem(), "a"), jobs.put(add_problem(), "b")
    jobs.take(0)
    jobs.again(failed, 0, "no memory")
    assert jobs.take(0) is behind
    for worker in [1, 0, 1][:RETRIES]:
        assert jobs.take(worker) is failed
        jobs.again(failed, worker, "no memory")
    verdict = jobs.wait(failed)
    assert verdict.status == "infra"
    assert "no memory" in verdict.detail
    again = jobs.put(add_problem(), "a")
    assert again.verdict is None


def test_a_worker_that_is_alone_tries_again_itself() -> None:
    jobs = ProgramQueue(workers=1, calibrate=False)
    failed = jobs.put(add_problem(), "a")
    jobs.take(0)
    jobs.again(failed, 0, "no memory")
    assert jobs.take(0) is failed


def test_who_waits_hears_of_a_worker_that_can_not_go_on_and_of_the_end() -> None:
    jobs = ProgramQueue(workers=1, calibrate=False)
    job = jobs.put(add_problem(), "a")
    jobs.close()
    assert jobs.take(0) is None
    with pytest.raises(SandboxError, match="closed before"):
        jobs.wait(job)
    other = ProgramQueue(workers=1, calibrate=False)
    job = other.put(add_problem(), "a")
    other.fail(OSError("no more processes"))
    with pytest.raises(OSError, match="no more processes"):
        other.wait(job)
