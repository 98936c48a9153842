"""Shows a person how a run goes on: one line a step, and bars under the lines in a terminal.

    with progress.waiting("Starting Ray"):      # says so, and again every ten seconds without a line
        ...

Both show a pause of training: since when, why, and that it ends by itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any, ClassVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from raypoly.core.progress_display import SILENT_SECONDS, waiting
from raypoly.core.text import duration
from raypoly.run.store.lease import start_of
from raypoly.strategies.judge.judge_usage import dollars

_STEP_SECONDS = 1.0
_STAGE_SECONDS = 30.0  # within a step, which has a line of its own


class Progress:
    """What the workflow reports to. A `row` is one of metrics.jsonl, whose steps count from 0; numbers may be missing.

    A step's line comes at most once a second. Without bars a long stage is told every thirty, or every ten where the
    run waits for something that has no line of its own, such as an evaluation. The time left is
    estimated from this start's steps, without its pauses.
    """

    timings: ClassVar[bool] = False
    """Whether the first step's line comes after one of what each second of the start went to."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now, self._began = now, now()
        self._total = self._first = 0
        self._paused = 0.0
        self._waits = {"Imports and config": process_seconds()} if self.timings else None
        self._printed = float("-inf")
        self._held: str | None = None
        self._stage_seconds = _STAGE_SECONDS
        columns = (TextColumn("{task.description:9}"), BarColumn(40), MofNCompleteColumn())
        redraws = console.is_terminal and not console.is_dumb_terminal
        self._bars = Bars(*columns, console=console) if redraws else None
        self._tasks: dict[str, TaskID] = {}

    def start(self, total_steps: int, first_step: int) -> None:
        self._total, self._first, self._began, self._paused = total_steps, first_step, self._now(), 0.0
        done = f"; {first_step} {'is' if first_step == 1 else 'are'} done already." if first_step else "."
        self.note(f"{total_steps} step{'s' * (total_steps != 1)}{done}")
        if self._bars is not None:
            self._bars.start()
            self._show_bar("step", first_step, total_steps)

    def stage(self, name: str, done: int, total: int) -> None:
        if self._bars is not None:
            self._show_bar(name, done, total)
        elif self._now() - self._printed >= self._stage_seconds:
            self.note(f"  {name} {done}/{total}")

    def step(self, row: Mapping[str, Any]) -> None:
        if self._waits is not None:
            self.note(f"The start, in seconds: {', '.join(f'{what} {took:.1f}' for what, took in self._waits.items())}")
            self._waits = None
        number = int(row["step"]) + 1
        left = self._seconds_left(number)
        eta = f"  {duration(left)} left" if left is not None and number < self._total else ""
        self._held = f"step {number}/{self._total}  {describe_step(row)}{eta}"
        if self._now() - self._printed >= _STEP_SECONDS or number == self._total:
            self._flush()
        if self._bars is not None:
            self._show_bar("step", number, self._total)

    def pause(self, reason: str, since: datetime) -> None:
        when = f"{since.astimezone():%Y-%m-%d %H:%M:%S %Z}"
        self.note(f"Paused since {when}: {reason.rstrip('.')}. Training goes on by itself when it is back.")

    def resume(self, seconds: float) -> None:
        self.exclude_seconds(seconds)
        self.note(f"Resumed after {duration(seconds)}.")

    def exclude_seconds(self, seconds: float) -> None:
        """Leave time that belongs to no step (an evaluation, a pause) out of the estimate."""
        self._paused += seconds

    def note(self, text: str) -> None:
        self._flush()
        self._console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._printed = self._now()

    @contextmanager
    def waiting(self, what: str, announce: bool = True) -> Iterator[None]:
        """Tell that the block is still at `what`; without `announce`, only if it takes long."""
        if announce:
            self.note(f"{what} ...")
        before, self._stage_seconds, began = self._stage_seconds, SILENT_SECONDS, self._now()
        bars = self._bars is not None and self._bars.live.is_started
        try:
            with nullcontext() if bars else waiting(what, self._console, lambda: self._printed):
                yield
        finally:
            self._stage_seconds = before
            if self._waits is not None:
                self._waits[what] = self._waits.get(what, 0.0) + self._now() - began

    def finish(self) -> None:
        self._flush()
        if self._bars is not None:
            self._bars.stop()

    def _flush(self) -> None:
        if self._held is not None:
            line, self._held = self._held, None
            self.note(line)

    def _show_bar(self, name: str, done: int, total: int) -> None:
        assert self._bars is not None
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name)
        self._bars.update(self._tasks[name], completed=done, total=total)

    def _seconds_left(self, done_steps: int) -> float | None:
        done = done_steps - self._first
        elapsed = self._now() - self._began - self._paused
        return elapsed / done * (self._total - done_steps) if done > 0 else None


def process_seconds() -> float:
    """Since this process began (Linux)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(start_of(os.getpid())) / os.sysconf("SC_CLK_TCK")


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
