"""Progress of a command: a bar in a terminal, else a line every ten seconds.

with show_progress("programs", 1000, lambda: (pool.done, pool.passed), console):
    ...
for group in track(groups, len(groups), "groups", console):
    ...
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")
_LINE_SECONDS = 10.0
_REDRAW_SECONDS = 0.25

Counts = Callable[[], tuple[int, int | None]]
"""(items done, items passed) so far; None where nothing can pass."""


@contextmanager
def show_progress(
    what: str, total: int | None, counts: Counts, console: Console, line_seconds: float = _LINE_SECONDS
) -> Iterator[None]:
    """While the block runs, show how many of `total` items are done; None if the total is unknown."""
    over = threading.Event()
    redraws = console.is_terminal and not console.is_dumb_terminal
    show, every = (_show_bar, _REDRAW_SECONDS) if redraws else (_print_lines, line_seconds)
    arguments = (what, total, counts, console, over, every)
    thread = threading.Thread(target=show, args=arguments, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def track(items: Iterable[T], total: int, what: str, console: Console) -> Iterator[T]:
    """The items, with progress shown while they are drawn."""
    done = 0
    with show_progress(what, total, lambda: (done, None), console):
        for item in items:
            done += 1
            yield item


def _show_bar(
    what: str, total: int | None, counts: Counts, console: Console, over: threading.Event, every: float
) -> None:
    columns = (TextColumn(what), BarColumn(40), MofNCompleteColumn(), TextColumn("{task.description}"))
    begin = time.monotonic()
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        while not over.wait(every):
            done, passed = counts()
            progress.update(task, completed=done, description=_describe_pace(done, passed, time.monotonic() - begin))


def _print_lines(
    what: str, total: int | None, counts: Counts, console: Console, over: threading.Event, every: float
) -> None:
    begin = time.monotonic()
    while not over.wait(every):
        done, passed = counts()
        of = "" if total is None else f" of {total:,}"
        pace = _describe_pace(done, passed, time.monotonic() - begin)
        console.print(f"{done:,}{of} {what}, {pace}", highlight=False, soft_wrap=True)


def _describe_pace(done: int, passed: int | None, seconds: float) -> str:
    return f"{done / seconds:,.1f}/s" + ("" if passed is None else f", {passed:,} passed")
