"""The comparison with TRL counts and divides rightly; TRL itself is not needed here."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

import numpy as np
import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.values import Problem
from raypoly.data import build_problem_set
from raypoly.data.formats import row_of
from raypoly.data.puzzles import puzzle_of
from raypoly.data.puzzles.puzzle_solutions import render_solution
from tests.support import process_costs
from tests.support.driver_process import ROOT
from tests.support.every_row_objective import EveryRow
from tests.support.immediate_exit import exit_now
from tests.support.paced_process import Pace, PacedProcess
from tests.support.step_tables import GIB, MeasuredArm, MeasuredStep, check_targets, speed_up, step_table


def measured(name: str, seconds: list[float], trained: int = 160, memory: float = 1.0) -> MeasuredArm:
    steps = [MeasuredStep(value, 160, trained, 5000) for value in seconds]
    return MeasuredArm(name, steps, [value / 2 for value in seconds], int(memory * GIB))


def test_a_ratio_is_the_median_of_the_rounds_and_not_of_the_arms() -> None:
    slow, fast = measured("a", [4.0, 30.0, 2.0]), measured("b", [2.0, 10.0, 2.0])
    ratio = speed_up(slow, fast)
    assert (ratio.median, ratio.lowest, ratio.highest) == (2.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="zip"):
        speed_up(slow, measured("c", [1.0]))


def test_the_table_shows_each_arm_against_the_first() -> None:
    arms = [measured("TRL", [4.0, 6.0]), measured("ours", [2.0, 2.0], trained=100)]
    lines = step_table("The step", arms).splitlines()
    assert lines[0].split()[:2] == ["The", "step"]
    assert lines[1].split() == ["TRL", "5.000", "4.000", "1", "2.50", "50%", "160", "0", "5000", "1.00"]
    assert lines[2].split()[:6] == ["ours", "2.000", "2.000", "2.50", "(2.00", "to"]
    assert lines[2].split()[6:] == ["3.00)", "1.00", "50%", "100", "120", "5000", "1.00"]


def test_targets_are_judged_by_the_better_arm_and_every_arms_rows() -> None:
    theirs = measured("TRL", [4.0], memory=1.5)
    slow, fast = measured("slow", [4.0]), measured("fast", [1.0], memory=2.0)
    verdicts = check_targets(theirs, [slow, fast], 2.0, "step")
    assert [met for met, _ in verdicts] == [True, True, False]
    assert "4.00 times as fast with fast" in verdicts[0][1]
    assert [met for met, _ in check_targets(theirs, [measured("skips", [4.0], trained=159)], 2.0, "step")] == [
        False,
        False,
        True,
    ]


def test_an_arm_does_a_step_when_it_is_told_and_its_death_is_said() -> None:
    with PacedProcess("waits", waiting, 3) as arm:
        assert [arm.step().tokens for _ in range(2)] == [3, 6]
        assert process_costs.largest_resident_bytes(arm.pid) > 1 << 20
        before = process_costs.cpu_seconds(arm.pid)
        arm.step()
        assert process_costs.cpu_seconds(arm.pid) >= before + 0.05 - 1e-6  # sums of hundredths
        with process_costs.peak(lambda: process_costs.resident_bytes(arm.pid)) as values:
            time.sleep(3 * process_costs.EVERY_SECONDS)
        assert min(values) > 1 << 20
    with PacedProcess("dies", dying) as arm, pytest.raises(RuntimeError, match="dies died with exit code 3"):
        arm.step()


def waiting(tokens: int, pace: Pace) -> None:
    pace.ready()
    done = 0
    while pace.next():
        until = time.process_time() + 0.06
        while time.process_time() < until:
            pass
        done += tokens
        pace.done(MeasuredStep(0.0, 1, 1, done))


def dying(pace: Pace) -> None:
    pace.ready()
    pace.next()
    exit_now(3)


@pytest.mark.parametrize("grader", ["sandboxes", "forks"])
def test_both_ways_of_running_programs_say_the_same(grader: str) -> None:
    source = build_problem_set(ProblemsConfig(budgets=False)).splits["train"]
    right = [(problem, solution(problem)) for problem in source[:4]]
    name = source[0].entry_point
    wrong = [f"def {name}(a, b):\n    return {body}" for body in ("[]", "[][5]", ")", "exit()")]
    programs = [*right, *((source[0], code) for code in wrong), (source[0], None), right[1]]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.steps.graders", grader],
        input="".join(json.dumps({"problem": row_of(problem), "code": code}) + "\n" for problem, code in programs),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [*4 * [True], *5 * [False], True]


def solution(puzzle: Problem) -> str:
    return puzzle.prefix + render_solution(puzzle_of(puzzle), "for", random.Random(0))


def test_no_row_is_left_out_and_none_is_changed() -> None:
    objective = EveryRow(EveryRow.Config())
    mixed = objective.advantages(rewards=[1.0, 0.0, 0.0, 0.0], labels=None, degenerate=None, lengths=[1] * 4)
    assert np.allclose(mixed, [0.75, -0.25, -0.25, -0.25])
    equal = objective.advantages(rewards=[0.0] * 4, labels=None, degenerate=None, lengths=[1] * 4)
    assert np.all(equal != 0.0)
    assert np.abs(equal).max() < 1e-9
