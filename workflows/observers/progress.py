"""Shows a person how a run goes on: bars in a terminal, one line a step in a log.

Both show a pause of training: since when, why, and that it ends by itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from raypoly.core.text import duration
from raypoly.strategies.judge.judge_usage import dollars

_STAGES = ("generate", "score", "judge", "learn")


class Progress:
    """What the workflow reports to. A `row` is one of metrics.jsonl, whose steps count from 0; numbers may be missing.

    The time left is estimated from this start's steps, without its pauses.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._began = now, now()
        self._total = self._first = 0
        self._paused = 0.0

    def start(self, total_steps: int, first_step: int, run_dir: Path) -> None:
        self._total, self._first, self._began, self._paused = total_steps, first_step, self._now(), 0.0

    def stage(self, name: str, done: int, total: int) -> None: ...
    def step(self, row: Mapping[str, Any]) -> None: ...
    def pause(self, reason: str, since: datetime) -> None: ...
    def resume(self, seconds: float) -> None: ...
    def exclude_seconds(self, seconds: float) -> None:
        """Leave time that belongs to no step (an evaluation, a pause) out of the estimate."""
        self._paused += seconds

    def note(self, text: str) -> None: ...
    def finish(self) -> None: ...

    def _seconds_left(self, done_steps: int) -> float | None:
        """Seconds to the end after `done_steps` steps; None before this start's first step is done."""
        done = done_steps - self._first
        elapsed = self._now() - self._began - self._paused
        return elapsed / done * (self._total - done_steps) if done > 0 else None


def make_progress() -> Progress:
    """Bars if standard output is a terminal that can redraw, else plain lines (a pipe, a Ray job's log)."""
    console = Console()
    return RichProgress(console) if console.is_terminal and not console.is_dumb_terminal else PlainProgress(sys.stdout)


def describe_step(row: Mapping[str, Any]) -> str:
    """One line, without the numbers that the row lacks."""
    parts = []
    if row.get("reward") is None and row.get("loss") is not None:
        parts.append(f"loss {row['loss']:.3f}")
    for key, template in (
        ("reward", "reward {:.3f}"),
        ("strategies", "strategies {:.2f}"),
        ("strategies_correct", "({:.2f} correct)"),
        ("zero_advantage", "no gradient {:.0%}"),
        ("grad_norm", "|g| {:.2f}"),
        ("tokens_per_second", "{:,.0f} tokens/s"),
    ):
        if row.get(key) is not None:
            parts.append(template.format(row[key]))
    if row.get("judge_usd_a_step") is not None and row.get("judge_usd_to_end") is not None:
        parts.append(f"judge {dollars(row['judge_usd_a_step'])} a step, {dollars(row['judge_usd_to_end'])} to the end")
    seconds = row.get("seconds", {}).get("total")
    if seconds is not None:
        parts.append(duration(seconds))
    return "  ".join(parts)


def pause_text(reason: str, since: datetime) -> str:
    when = f"{since.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    return f"Paused since {when}: {reason.rstrip('.')}. Training goes on by itself when it is back."


class PlainProgress(Progress):
    """Whole lines: the latest step at most once a second, a long stage every thirty."""

    STEP_SECONDS = 1.0
    STAGE_SECONDS = 30.0

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._stream = stream
        self._printed = float("-inf")
        self._held: str | None = None

    def start(self, total_steps: int, first_step: int, run_dir: Path) -> None:
        super().start(total_steps, first_step, run_dir)
        begun = f"; {first_step} are done already" if first_step else ""
        self._print(f"{total_steps} steps{begun}.")

    def stage(self, name: str, done: int, total: int) -> None:
        if self._now() - self._printed >= self.STAGE_SECONDS:
            self._print(f"  {name} {done}/{total}")

    def step(self, row: Mapping[str, Any]) -> None:
        number = int(row["step"]) + 1
        left = self._seconds_left(number)
        eta = f"  {duration(left)} left" if left is not None and number < self._total else ""
        self._held = f"step {number}/{self._total}  {describe_step(row)}{eta}"
        if self._now() - self._printed >= self.STEP_SECONDS or number == self._total:
            self._flush()

    def pause(self, reason: str, since: datetime) -> None:
        self._print(pause_text(reason, since))

    def resume(self, seconds: float) -> None:
        self.exclude_seconds(seconds)
        self._print(f"Resumed after {duration(seconds)}.")

    def note(self, text: str) -> None:
        self._print(text)

    def finish(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._held is not None:
            line, self._held = self._held, None
            self._print(line)

    def _print(self, text: str) -> None:
        self._flush()
        print(text, file=self._stream, flush=True)
        self._printed = self._now()


class RichProgress(Progress):
    """Bars for the run and each stage of the step; under them the last step's numbers, or the pause."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._console = console
        self._run = Bars(
            TextColumn("[bold]{task.description:9}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TextColumn("{task.fields[eta]}"),
        )
        self._stages = Bars(
            TextColumn("  {task.description:9}"), BarColumn(38), MofNCompleteColumn(), TimeRemainingColumn()
        )
        self._tasks: dict[str, TaskID] = {}
        self._all: TaskID | None = None
        self._line = Text("starting ...")
        self._before_pause = self._line
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8, transient=False)

    def _render(self) -> Group:
        return Group(self._run, self._stages, self._line)

    def start(self, total_steps: int, first_step: int, run_dir: Path) -> None:
        super().start(total_steps, first_step, run_dir)
        self._all = self._run.add_task("step", total=total_steps, completed=first_step, eta="")
        self._tasks = {name: self._stages.add_task(name, total=None) for name in _STAGES}
        self._live.start()

    def stage(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._stages.add_task(name, total=total)
        task = self._tasks[name]
        if done <= self._stages.tasks[self._stages.task_ids.index(task)].completed:
            self._stages.reset(task)
        self._stages.update(task, completed=done, total=total)

    def step(self, row: Mapping[str, Any]) -> None:
        number = int(row["step"]) + 1
        left = self._seconds_left(number)
        if self._all is not None:
            self._run.update(self._all, completed=number, eta=f"{duration(left)} left" if left is not None else "")
        self._line = Text(describe_step(row))

    def pause(self, reason: str, since: datetime) -> None:
        self._before_pause, self._line = self._line, Text(pause_text(reason, since), style="bold yellow")
        if not self._live.is_started:
            self._console.print(self._line)

    def resume(self, seconds: float) -> None:
        self.exclude_seconds(seconds)
        self._line = self._before_pause
        self._console.print(f"Paused for {duration(seconds)}, then went on.", highlight=False)

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def finish(self) -> None:
        self._live.stop()
