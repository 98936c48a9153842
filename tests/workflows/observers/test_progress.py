"""What a person reads while a run goes on, in a log and in a terminal."""

from __future__ import annotations

import io
import re
import time
from datetime import datetime

import pytest
from rich.console import Console

from raypoly.core.progress_display import waiting
from raypoly.strategies.judge.judge_usage import dollars
from tests.support.finished_run import metrics_row
from workflows.observers.progress import Progress, describe_step

SINCE = datetime(2026, 11, 21, 3, 4, 5).astimezone()


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_a_log_gets_one_line_a_step_with_the_time_that_is_left() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(Console(file=out), clock)
    progress.start(10, 0)
    for step in (0, 1):
        clock.time += 30
        progress.step(metrics_row(step))
    progress.finish()
    first, one, two = out.getvalue().splitlines()
    assert first == "10 steps."
    assert one.startswith("step 1/10  reward 0.200  strategies 1.40  (0.60 correct)")
    assert "4,321 tokens/s" in one
    assert one.endswith("4.5 min left")
    assert two.endswith("4.0 min left")


def test_the_judges_cost_is_told_where_it_is_known() -> None:
    row = {**metrics_row(0), "judge_usd_a_step": 0.01603, "judge_usd_to_end": 1.29}
    assert "judge $0.016 a step, $1.3 to the end" in describe_step(row)
    assert "judge" not in describe_step({**row, "judge_usd_a_step": None, "judge_usd_to_end": None})
    assert "judge" not in describe_step(metrics_row(0)), "a judge that is offline, or a row of an earlier version"


@pytest.mark.parametrize(
    ("amount", "told"), [(0.0, "$0"), (0.0000123, "$0.000012"), (0.016, "$0.016"), (9.94, "$9.9"), (1304.2, "$1,304")]
)
def test_small_amounts_keep_two_digits_and_large_ones_no_cents(amount: float, told: str) -> None:
    assert dollars(amount) == told


def test_a_log_gets_at_most_one_line_a_second_and_the_last_step_always_and_long_stages_are_not_silent() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(Console(file=out), clock)
    progress.start(100, 0)
    for step in range(100):
        clock.time += 0.1
        progress.step(metrics_row(step))
    progress.finish()
    lines = out.getvalue().splitlines()
    assert len(lines) <= 12
    assert lines[-1].startswith("step 100/100")
    for done in range(100):
        clock.time += 1
        progress.stage("generate", done, 160)
    assert 2 <= out.getvalue().count("generate") <= 4


def test_a_log_is_told_again_and_again_what_takes_long_but_not_beside_other_lines() -> None:
    out = io.StringIO()
    console = Console(file=out)
    with waiting("Starting Ray", console, line_seconds=0.2):
        time.sleep(0.7)
    told = out.getvalue().splitlines()
    assert 2 <= len(told) <= 3
    assert all(re.fullmatch(r"  still starting Ray, 0\.\d s", line) for line in told)
    with waiting("Starting Ray", console, time.monotonic, line_seconds=0.2):
        time.sleep(0.5)
    assert len(out.getvalue().splitlines()) == len(told), "another line came meanwhile"
    progress = Progress(console)
    with progress.waiting("Loading"), progress.waiting("Short", announce=False):
        pass
    assert out.getvalue().splitlines()[len(told) :] == ["Loading ..."]


def test_a_terminal_gets_a_spinner_with_the_time() -> None:
    out = io.StringIO()
    with waiting("Starting Ray", Console(file=out, force_terminal=True, width=80, _environ={"TERM": "xterm"})):
        time.sleep(0.6)
    assert "Starting Ray, 0." in out.getvalue()


def test_an_evaluation_is_told_more_often_than_a_steps_stages() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(Console(file=out), clock)
    with progress.waiting("Measuring"):
        for done in range(100):
            clock.time += 1
            progress.stage("generate", done, 160)
    assert 9 <= out.getvalue().count("generate") <= 12


def test_a_pause_says_since_when_and_why_and_that_it_ends_by_itself() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(Console(file=out), clock)
    progress.start(10, 4)
    progress.pause("the judge at localhost refuses connections", SINCE)
    progress.resume(3725)
    lines = out.getvalue().splitlines()
    assert lines[0] == "10 steps; 4 are done already."
    assert lines[1] == (
        f"Paused since {SINCE:%Y-%m-%d %H:%M:%S} {SINCE:%Z}: the judge at localhost refuses connections. "
        "Training goes on by itself when it is back."
    )
    assert lines[2] == "Resumed after 62.1 min."


@pytest.mark.parametrize("told", ["resume", "exclude_seconds"])
def test_a_pause_or_an_evaluation_does_not_make_the_time_left_longer(told: str) -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(Console(file=out), clock)
    progress.start(10, 0)
    clock.time += 1000
    getattr(progress, told)(990)
    progress.step(metrics_row(0))
    progress.finish()
    assert "90 s left" in out.getvalue()


def test_a_terminal_shows_the_same_lines_above_bars() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, force_terminal=True, width=110, _environ={"TERM": "xterm"}))
    progress.start(10, 2)
    for name in ("generate", "score", "judge", "learn"):
        progress.stage(name, 8, 20)
    progress.stage("generate", 0, 20)
    progress.step(metrics_row(2))
    progress.pause("no answer", SINCE)
    progress.resume(61)
    progress.note("a note [not markup]")
    progress.finish()
    shown = out.getvalue()
    for word in ("generate", "score", "judge", "learn", "3/10", "8/20", "0/20", "Paused since 2026-11-21 03:04:05"):
        assert word in shown
    for line in ("Resumed after 61 s.", "a note [not markup]", "reward 0.360"):
        assert line in shown


def test_timings_say_what_the_start_went_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "timings", True)
    out, clock = io.StringIO(), Clock()
    progress = Progress(Console(file=out), clock)
    for what, seconds in (("Starting Ray", 4.2), ("Getting the model", 0.5)):
        with progress.waiting(what, announce=False):
            clock.time += seconds
    progress.start(10, 0)
    progress.step(metrics_row(0))
    progress.step(metrics_row(1))
    (told,) = re.findall(r"The start, in seconds: Imports and config ([\d.]+), (.*)", out.getvalue())
    assert float(told[0]) > 0.5, "an interpreter that has imported pytest is older than that"
    assert told[1] == "Starting Ray 4.2, Getting the model 0.5"
