"""What is finished is not done again, what fails stops nobody, and what a killed experiment left is waited for."""

from __future__ import annotations

import signal
import statistics
from pathlib import Path

import pytest

from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.analysis.experiments.run_queue import RunningTraining, RunQueue, is_held, last_log_line
from raypoly.core.interrupt import Interrupted, interruptible
from raypoly.core.text import duration
from tests.raypoly.analysis.experiments.made_experiments import finish, outcomes, runs_of, scripted, that_finishes


@pytest.fixture
def runs(tmp_path: Path) -> list[PlannedRun]:
    """Two arms with two seeds: grpo-s0, poly_epo-s0, grpo-s1, poly_epo-s1."""
    (tmp_path / "out").mkdir()
    return runs_of(tmp_path)


def test_a_finished_run_is_not_done_again(runs: list[PlannedRun], tmp_path: Path) -> None:
    finish(runs[0])
    finish(runs[1])
    finish(runs[2])
    never = [scripted(run, "raise SystemExit('done again')") for run in runs[:3]]
    found, said = outcomes([*never, that_finishes(runs[3], tmp_path)])
    assert found == {"poly_epo-s1": "finished"}
    assert len(said) == 1
    assert said[0].startswith("poly_epo-s1: finished  pass@1 0.250 -> 0.550  pass@64")
    assert outcomes(runs) == ({}, [])


def test_a_run_that_fails_or_waits_for_its_judge_is_told_and_the_others_go_on(
    runs: list[PlannedRun], tmp_path: Path
) -> None:
    stated = (
        "import sys; print('once upon a time'); sys.stdout.flush(); print({said!r}, file=sys.stderr); sys.exit({code})"
    )
    found, said = outcomes(
        [
            scripted(runs[0], stated.format(said="No room for it.", code=1)),
            scripted(runs[1], stated.format(said="The judge stayed away.", code=75)),
            scripted(runs[2], "pass"),
            that_finishes(runs[3], tmp_path),
        ]
    )
    assert list(found.values()) == ["failed", "paused", "stopped", "finished"]
    assert said[0].startswith(f"grpo-s0: failed with exit code 1: No room for it ({runs[0].log})")
    assert said[0].endswith("; 3 of 4 left"), "nothing is known of runs of as many steps"
    assert said[1].startswith("poly_epo-s0: is paused: The judge stayed away  ")
    assert said[2].startswith("grpo-s1: was stopped before its end  ")


def test_runs_go_on_side_by_side(runs: list[PlannedRun], tmp_path: Path) -> None:
    """Each of two waits for a file of the other's: one after the other they would wait for ever."""
    wait = """
import pathlib, time
pathlib.Path({mine!r}).touch()
while not pathlib.Path({other!r}).exists():
    time.sleep(0.02)
"""
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    pair = [
        that_finishes(runs[0], tmp_path, wait.format(mine=a, other=b)),
        that_finishes(runs[1], tmp_path, wait.format(mine=b, other=a)),
    ]
    found, _ = outcomes(pair, at_once=2)
    assert set(found.values()) == {"finished"}


def until(gate: Path) -> str:
    """Lines of a script that wait for a file; not for ever, should nobody make it."""
    return f"""
import os, pathlib, signal, time
for _ in range(6000):
    if pathlib.Path({str(gate)!r}).exists():
        break
    time.sleep(0.05)
"""


def outcomes_beside(left: RunningTraining, runs: list[PlannedRun], gate: Path) -> tuple[list[str], list[str]]:
    """The runs' names as they finished, and what was said; `gate` opens when something is waited for."""
    assert is_held(left.run)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        gate.touch()

    ended = RunQueue(runs, 1, say).to_the_end()
    assert {each.outcome for each in ended} == {"finished"}
    assert not is_held(left.run)
    left.end()
    return [each.run.name for each in ended], said


def test_what_a_killed_experiment_left_at_work_is_waited_for_and_not_started_twice(
    runs: list[PlannedRun], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    others = [that_finishes(run, tmp_path) for run in runs[:3]]
    left = RunningTraining.begin(that_finishes(runs[3], tmp_path, until(gate)))
    twice = scripted(runs[3], "raise SystemExit('started twice')")
    ended, said = outcomes_beside(left, [*others, twice], gate)
    assert said[0] == "poly_epo-s1: a process of an earlier start is at it, and is waited for"
    assert said[1].startswith("poly_epo-s1: finished, by an earlier start  pass@1")
    assert ended == ["poly_epo-s1", "grpo-s0", "poly_epo-s0", "grpo-s1"]


def test_what_was_left_and_then_killed_is_begun_again(runs: list[PlannedRun], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    again = that_finishes(runs[0], tmp_path)
    left = RunningTraining.begin(scripted(runs[0], f"{until(gate)}\nos.kill(os.getpid(), signal.SIGKILL)"))
    ended, said = outcomes_beside(left, [again], gate)
    assert (ended, len(said)) == (["grpo-s0"], 2)


def test_a_run_that_is_killed_is_told_with_the_signal(runs: list[PlannedRun]) -> None:
    found, said = outcomes([scripted(runs[0], "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")])
    assert found == {"grpo-s0": "failed"}
    assert said[0].startswith("grpo-s0: failed with signal 9: it said nothing (")


def test_when_the_experiment_is_stopped_its_trainings_end_in_good_order(runs: list[PlannedRun], tmp_path: Path) -> None:
    committed = tmp_path / "committed"
    training = f"""
import os, pathlib, signal, sys, time
def commit(number, frame):
    pathlib.Path({str(committed)!r}).touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, commit)
time.sleep(1)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
"""
    said: list[str] = []
    running = RunQueue([scripted(runs[0], training), that_finishes(runs[1], tmp_path)], 1, said.append)
    with pytest.raises(Interrupted) as stopped, interruptible("Interrupted."):
        running.to_the_end()
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert committed.exists()
    assert not runs[1].place.exists(), "nothing more begins"
    assert said == ["grpo-s0: what is under way is committed"]
    assert not is_held(runs[0])


def test_the_last_words_of_this_start_are_told_and_not_where_the_traceback_is(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("an earlier start\n")
    begin = log.stat().st_size
    assert last_log_line(log, begin) == "it said nothing"
    with log.open("a") as more:
        more.write("ValueError: of this one.\n\nThe traceback is in x.txt; everything committed is kept.\n")
    assert last_log_line(log, begin) == "ValueError: of this one"


def test_what_is_left_is_estimated_by_finished_runs_of_as_many_steps(runs: list[PlannedRun], tmp_path: Path) -> None:
    for run in runs[:2]:
        finish(run)
    mean = statistics.mean(run.result.seconds for run in runs[:2])
    queue = [*runs[:2], *(that_finishes(run, tmp_path) for run in runs[2:])]
    _, said = outcomes(queue)
    assert said[0].endswith(f"; 1 of 4 left, some {duration(mean)}"), "the run that ended is one of as many steps"
