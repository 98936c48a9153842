"""The same question asked by many at once is one question."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from raypoly.core.errors import JudgeRefused
from raypoly.strategies.judge.openai.answer_cache import InFlightQuestions
from tests.raypoly.strategies.judge.openai_groups import TWO, ids, judge
from tests.support.faulty_handler import Answer
from tests.support.faulty_server import Server, running


class Held(Server):
    """Answers nobody until it is let go."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked, self.go = threading.Event(), threading.Event()

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        self.asked.set()
        self.go.wait(60)
        return super().answer(body, headers)


def together(server: Held, work: Callable[[], object], count: int = 6) -> list[object]:
    """What `count` threads found or raised that began before the first was answered."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except JudgeRefused as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    assert server.asked.wait(60)
    server.go.set()
    for thread in threads:
        thread.join()
    return found


def test_a_group_that_many_ask_at_once_is_paid_for_once(tmp_path: Path) -> None:
    with running(Held()) as server, judge(server, tmp_path) as asked:
        assert together(server, lambda: ids(asked.label(*TWO))) == [[1, 2, 1]] * 6
        stats = asked.stats()
    assert (len(server.bodies), stats.answers, stats.cache_hits) == (1, 1, 5)


def test_a_failure_is_nobodys_but_whose_it_was(tmp_path: Path) -> None:
    # drawn before the answer, so the first request fails while the others wait
    with running(Held(faults=["ok", "400-context"])) as server, judge(server, tmp_path) as asked:
        server.go.set()
        asked.probe()
        found = together(server, lambda: ids(asked.label(*TWO)))
    assert len([each for each in found if isinstance(each, JudgeRefused)]) == 1
    assert found.count([1, 2, 1]) == 5
    assert asked.stats().answers == 1


def test_without_a_cache_every_question_is_asked(tmp_path: Path) -> None:
    with running(Held()) as server, judge(server, tmp_path, cache_mib=0) as asked:
        assert together(server, lambda: ids(asked.label(*TWO)), 3) == [[1, 2, 1]] * 3
    assert len(server.bodies) == 3


def test_no_lock_is_kept_for_a_question_that_is_over() -> None:
    flights = InFlightQuestions()
    with flights.alone("a"), flights.alone("b"):
        assert len(flights) == 2
    assert len(flights) == 0
