"""What a person sees while programs run (a bar in a terminal, else a line every ten seconds), and the table after."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from raypoly.values import STATUSES

LINE_SECONDS = 10.0
REDRAW_SECONDS = 0.25

Counts = Callable[[], tuple[int, int]]
"""(programs done, programs passed) so far."""


@contextmanager
def shown(total: int | None, counts: Counts, console: Console, line_seconds: float = LINE_SECONDS) -> Iterator[None]:
    """Show how far `counts` has come on the way to `total`, where that is known, while the block runs."""
    over = threading.Event()
    redraws = console.is_terminal and not console.is_dumb_terminal
    show, every = (_bar, REDRAW_SECONDS) if redraws else (_lines, line_seconds)
    thread = threading.Thread(target=show, args=(total, counts, console, over, every), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _bar(total: int | None, counts: Counts, console: Console, over: threading.Event, every: float) -> None:
    columns = (TextColumn("programs"), BarColumn(40), MofNCompleteColumn(), TextColumn("{task.description}"))
    begin = time.monotonic()
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        while not over.wait(every):
            done, passed = counts()
            progress.update(task, completed=done, description=_pace(done, passed, time.monotonic() - begin))


def _lines(total: int | None, counts: Counts, console: Console, over: threading.Event, every: float) -> None:
    begin = time.monotonic()
    while not over.wait(every):
        done, passed = counts()
        pace = _pace(done, passed, time.monotonic() - begin)
        of = "" if total is None else f" of {total:,}"
        console.print(f"{done:,}{of} programs, {pace}", highlight=False, soft_wrap=True)


def _pace(done: int, passed: int, seconds: float) -> str:
    return f"{done / seconds:,.1f}/s, {passed:,} passed"


def status_table(counts: Counter[str], first: str = "status") -> Table:
    """How many of each; statuses that everybody knows in their usual order, others behind them."""
    table = Table()
    table.add_column(first)
    table.add_column("programs" if first == "status" else "problems", justify="right")
    for status in sorted(counts, key=lambda name: (*STATUSES, name).index(name)):
        table.add_row(status, f"{counts[status]:,}")
    return table
