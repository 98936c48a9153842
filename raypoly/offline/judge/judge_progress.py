"""How far a command has come: a bar in a terminal, else a line now and then.

for item in told(items, total=60, what="groups", console=NOTES):
    ...
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")

LINE_SECONDS = 10.0


def told(items: Iterable[T], total: int, what: str, console: Console, every: float = LINE_SECONDS) -> Iterator[T]:
    """The items, with word of how many came out of how many."""
    if console.is_terminal and not console.is_dumb_terminal:
        columns = (TextColumn(what), BarColumn(40), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            yield from progress.track(items, total=total)
        return
    last = time.monotonic()
    for count, item in enumerate(items, 1):
        if time.monotonic() - last >= every:
            last = time.monotonic()
            console.print(f"{what}: {count:,} of {total:,}", highlight=False, soft_wrap=True)
        yield item
