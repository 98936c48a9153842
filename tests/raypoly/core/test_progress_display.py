"""What a person sees while a command runs."""

from __future__ import annotations

import io
import threading
from collections import Counter

import pytest
from rich.console import Console

from raypoly.commands.score_files import status_table
from raypoly.core.progress_display import show_progress, track


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_gets_lines_and_a_terminal_a_bar(terminal: bool) -> None:
    asked = threading.Semaphore(0)

    def counts() -> tuple[int, int]:
        asked.release()
        return 3, 2

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120, _environ={"TERM": "xterm"})
    with show_progress("programs", 10, counts, console, line_seconds=0.01):
        asked.acquire()
        asked.acquire()
    said = stream.getvalue()
    assert "2 passed" in said
    assert ("3/10" if terminal else "3 of 10 programs") in said


def test_the_table_counts_each_status_in_the_usual_order() -> None:
    stream = io.StringIO()
    Console(file=stream).print(status_table(Counter({"broken": 1, "infra": 2, "passed": 1234})))
    said = stream.getvalue()
    assert "1,234" in said
    assert said.index("passed") < said.index("infra") < said.index("broken")


def test_items_that_are_tracked_come_out_as_they_are() -> None:
    assert list(track(iter("abc"), 3, "letters", Console(file=io.StringIO()))) == ["a", "b", "c"]
