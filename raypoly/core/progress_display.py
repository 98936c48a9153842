"""Progress of long work on a console: a bar in a terminal, else a line every ten seconds.

with show_progress("programs", 1000, lambda: (pool.done, pool.passed), console):
    ...
for group in track(groups, len(groups), "groups", console):
    ...
with waiting("Starting Ray", console):      # work without items to count
    ...
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from raypoly.core.text import duration

T = TypeVar("T")
_LINE_SECONDS = 10.0
SILENT_SECONDS = 9.0  # so that no ten pass without a line
_REDRAW_SECONDS = 0.25

Counts = Callable[[], tuple[int, int | None]]
"""(items done, items passed) so far; None where nothing can pass."""
Show = Callable[[int, str], None]
"""Takes the items done and the pace in words."""


@contextmanager
def show_progress(
    what: str, total: int | None, counts: Counts, console: Console, line_seconds: float = _LINE_SECONDS
) -> Iterator[None]:
    """Show how many of `total` items are done while the block runs; `total` is None if unknown."""
    over = threading.Event()
    redraws = console.is_terminal and not console.is_dumb_terminal
    display = _bar(what, total, console) if redraws else _lines(what, total, console)
    every = _REDRAW_SECONDS if redraws else line_seconds

    def report() -> None:
        begin = time.monotonic()
        with display as show:
            while not over.wait(every):
                done, passed = counts()
                pace = f"{done / (time.monotonic() - begin):,.1f}/s"
                show(done, pace if passed is None else f"{pace}, {passed:,} passed")

    with beside(report, over):
        yield


def track(items: Iterable[T], total: int, what: str, console: Console) -> Iterator[T]:
    """The items, with progress shown while they are drawn."""
    done = 0
    with show_progress(what, total, lambda: (done, None), console):
        for item in items:
            done += 1
            yield item


@contextmanager
def waiting(
    what: str,
    console: Console,
    last: Callable[[], float] = lambda: float("-inf"),
    line_seconds: float = SILENT_SECONDS,
) -> Iterator[None]:
    """Tell, while the block runs, that it is still at `what`, and for how long: beside a spinner in a terminal, else by
    a line after so many seconds without one. `last`: when, by `time.monotonic`, the caller printed its last."""
    over, began = threading.Event(), time.monotonic()

    def report() -> None:
        told = began
        redraws = console.is_terminal and not console.is_dumb_terminal
        with console.status(what) if redraws else nullcontext() as status:
            while not over.wait(min(line_seconds / 10, _REDRAW_SECONDS)):
                now = time.monotonic()
                passed = f"{what}, {duration(now - began)}"
                if status is not None:
                    status.update(passed)
                elif now - max(told, last()) >= line_seconds:
                    told, line = now, f"  still {passed[:1].lower()}{passed[1:]}"
                    console.print(line, highlight=False, markup=False, soft_wrap=True)

    with beside(report, over):
        yield


@contextmanager
def beside(report: Callable[[], None], over: threading.Event) -> Iterator[None]:
    """Run `report` in a thread beside the block, at whose end `over` is set and the thread is waited for."""
    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _bar(what: str, total: int | None, console: Console) -> Iterator[Show]:
    columns = (TextColumn(what), BarColumn(40), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done, pace: progress.update(task, completed=done, description=pace)


def _lines(what: str, total: int | None, console: Console) -> AbstractContextManager[Show]:
    of = "" if total is None else f" of {total:,}"
    say = partial(console.print, highlight=False, soft_wrap=True)
    return nullcontext(lambda done, pace: say(f"{done:,}{of} {what}, {pace}"))
