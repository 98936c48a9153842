"""Who runs what when."""

from __future__ import annotations

import pytest

from raypoly.core.errors import BrokenTests, SandboxError
from raypoly.core.values import Verdict
from raypoly.verifier.program_queue import REJECTIONS, RETRIES, Chunk, ProgramQueue, QueuedProgram
from tests.support.program_files import add_problem, right_code

PASSED = Verdict("passed", 2, 2, 0.1)
BY_THE_CLOCK = Verdict("timeout", 0, 2, 6.0, repeatable=False)


def take(queue: ProgramQueue, worker: int, most: int = 1) -> Chunk:
    chunk = queue.take(worker, most)
    assert chunk is not None
    return chunk


def taken(queue: ProgramQueue, worker: int, most: int = 1) -> tuple[QueuedProgram, ...]:
    return take(queue, worker, most).programs


def test_the_same_program_runs_once_while_it_waits_and_after() -> None:
    queue = ProgramQueue(workers=2)
    problem = add_problem()
    first, second = queue.put(problem, "code"), queue.put(problem, "code")
    assert first is second
    assert taken(queue, 0) == (first,)
    assert queue.take(1) is None
    assert queue.finish(first, PASSED)
    assert queue.put(problem, "code").verdict is PASSED
    assert (queue.outcomes, queue.passed) == (3, 3)


def test_problems_with_the_same_tests_share_verdicts_and_others_do_not() -> None:
    queue = ProgramQueue(workers=1, calibrate=False)
    first = queue.put(add_problem(), "code")
    assert queue.put(add_problem(problem_id="twin"), "code") is first
    assert queue.put(add_problem(solution=right_code(0)), "code") is not first


def test_a_verdict_of_the_moment_is_measured_again_next_time() -> None:
    queue = ProgramQueue(workers=1)
    problem = add_problem()
    first = queue.put(problem, "code")
    queue.take(0)
    queue.finish(first, BY_THE_CLOCK)
    again = queue.put(problem, "code")
    assert again.verdict is None
    assert taken(queue, 0) == (again,)


def test_the_lowest_order_goes_first_and_programs_of_one_problem_travel_together() -> None:
    queue = ProgramQueue(workers=1)
    late = [queue.put(add_problem(), f"late {n}", order=7) for n in range(3)]
    early = [queue.put(add_problem(solution="1"), f"early {n}", order=2) for n in range(2)]
    calibration = take(queue, 0, 8)
    assert calibration.calibrates
    queue.settle(calibration.state, 0.1)
    assert taken(queue, 0, 8) == tuple(early)
    assert taken(queue, 0, 2) == tuple(late[:2])
    assert taken(queue, 0, 2) == tuple(late[2:])
    assert queue.take(0) is None


def test_one_worker_calibrates_while_another_runs_other_problems() -> None:
    queue = ProgramQueue(workers=2)
    solved, plain = add_problem(solution=right_code(0)), add_problem(problem_id="plain")
    first, second, other = queue.put(solved, "a"), queue.put(solved, "b"), queue.put(plain, "c")
    calibration = take(queue, 0)
    assert calibration.calibrates
    assert taken(queue, 1, 8) == (other,)
    assert queue.take(1) is None
    queue.settle(calibration.state, 0.25)
    assert taken(queue, 1, 8) == (first, second)
    assert first.state.limited().reference_seconds == 0.25
    assert queue.reference_seconds(solved) == 0.25


def test_a_calibration_that_failed_goes_to_another_worker_and_at_last_surfaces() -> None:
    queue = ProgramQueue(workers=2)
    program = queue.put(add_problem(solution=right_code(0)), "a")
    for worker in [0, 1, 0, 1][: RETRIES + 1]:
        assert queue.take(1 - worker if program.state.failures else worker) is not None or program.state.failures
        chunk = Chunk(program.state)
        queue.again(chunk, worker, "the zygote is gone")
        assert queue.take(worker) is None or program.done
    assert isinstance(program.error, SandboxError)
    assert "the zygote is gone" in str(program.error)


def test_tests_that_can_not_be_run_end_all_programs_of_their_problem() -> None:
    queue = ProgramQueue(workers=2)
    problem = add_problem()
    error = BrokenTests("no such module")
    for _ in range(REJECTIONS):
        first, second = queue.put(problem, "a"), queue.put(problem, "b")
        chunk = take(queue, 0)
        queue.reject(chunk, error)
        assert first.error is second.error is error
        assert queue.waiting == 0
    assert queue.put(problem, "c").error is error


def test_what_the_sandbox_failed_at_goes_to_another_worker_and_at_last_surfaces() -> None:
    queue = ProgramQueue(workers=2)
    failed, behind = queue.put(add_problem(), "a"), queue.put(add_problem(), "b")
    chunk = take(queue, 0, 8)
    assert chunk.programs == (failed, behind)
    queue.again(chunk, 0, "no memory")
    assert queue.take(0, 8) is None
    for worker in [1, 0, 1][:RETRIES]:
        chunk = take(queue, worker, 8)
        assert chunk.programs == (failed,)
        queue.again(chunk, worker, "no memory")
    assert isinstance(failed.error, SandboxError)
    assert "no memory" in str(failed.error)
    assert not behind.done
    assert not queue.put(add_problem(), "a").done


def test_workers_that_are_lost_with_their_node_do_not_count_against_a_program() -> None:
    """It may be given to one idle worker of that node after the other."""
    queue = ProgramQueue(workers=9)
    program = queue.put(add_problem(), "x")
    for worker in range(2 * RETRIES):
        queue.again(Chunk(program.state, taken(queue, worker)), worker, "its node died", counts=False)
    (again,) = taken(queue, 8)
    assert queue.finish(again, PASSED)
    assert program.error is None


def test_a_worker_that_is_alone_tries_again_itself() -> None:
    queue = ProgramQueue(workers=1)
    failed = queue.put(add_problem(), "a")
    queue.again(Chunk(failed.state, taken(queue, 0)), 0, "no memory")
    assert taken(queue, 0) == (failed,)


def test_a_program_that_two_workers_have_gets_the_first_verdict_and_is_tried_no_more() -> None:
    queue = ProgramQueue(workers=2)
    program = queue.put(add_problem(), "a")
    chunk = take(queue, 0)
    queue.again(chunk, 0, "its worker was lost")
    assert queue.finish(program, PASSED)
    assert not queue.finish(program, BY_THE_CLOCK)
    assert queue.waiting == 0
    assert program.verdict is PASSED


def test_a_pool_without_workers_tells_all_that_wait() -> None:
    queue = ProgramQueue(workers=1)
    programs = [queue.put(add_problem(), code) for code in "abc"]
    queue.abandon_waiting(OSError("no more processes"))
    with pytest.raises(OSError, match="no more processes"):
        raise programs[2].error or AssertionError
    assert queue.take(0) is None
