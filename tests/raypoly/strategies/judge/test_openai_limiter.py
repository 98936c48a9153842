"""The limiter: turns go round the runs, in each run in the order of asking, and nobody who left is waited for."""

from __future__ import annotations

import threading
import time

import pytest

from raypoly.core.errors import JudgeUnavailable
from raypoly.strategies.judge.judge_usage import asking_for
from raypoly.strategies.judge.openai.rate_limiter import RateLimiter, SharedLimiter


class Crowd:
    """Threads that ask one limiter, and the order in which they were served."""

    def __init__(self, limiter: SharedLimiter) -> None:
        self._limiter = limiter
        self._threads: list[threading.Thread] = []
        self.served: list[str] = []

    def ask(self, run: str, name: str) -> None:
        """One more thread; returns when it waits."""
        waiting = self._limiter.waiting
        self._threads.append(threading.Thread(target=self._wait, args=(run, name)))
        self._threads[-1].start()
        while self._limiter.waiting == waiting:
            time.sleep(0.001)

    def end(self) -> list[str]:
        for thread in self._threads:
            thread.join()
        return self.served

    def _wait(self, run: str, name: str) -> None:
        with asking_for(run):
            sent = self._limiter.enter(1, lambda: None)
        self.served.append(name)
        self._limiter.leave(lambda limiter, now: limiter.answered(sent, now, 1, {}))


@pytest.fixture
def limiter() -> SharedLimiter:
    return SharedLimiter(RateLimiter(requests=None, tokens=None, concurrency=1))


def test_turns_of_one_run_are_given_in_the_order_in_which_they_were_asked_for(limiter: SharedLimiter) -> None:
    first, crowd = limiter.enter(1, lambda: None), Crowd(limiter)
    for number in range(6):
        crowd.ask("run", str(number))
    limiter.leave(lambda limiter, now: limiter.failed(first, now))
    assert crowd.end() == list("012345")


def test_a_run_with_four_groups_is_served_within_eight_turns_of_one_with_a_hundred(limiter: SharedLimiter) -> None:
    first, crowd = limiter.enter(1, lambda: None), Crowd(limiter)
    for number in range(100):
        crowd.ask("many", f"many {number}")
    for number in range(4):
        crowd.ask("few", f"few {number}")
    limiter.leave(lambda limiter, now: limiter.failed(first, now))
    turns = crowd.end()
    assert [turn for turn in turns if "few" in turn] == [f"few {number}" for number in range(4)]
    assert turns.index("few 3") < 8
    assert len(turns) == 104


def test_who_gives_up_holds_nobody_back(limiter: SharedLimiter) -> None:
    first, crowd = limiter.enter(1, lambda: None), Crowd(limiter)

    def away() -> None:
        raise JudgeUnavailable("away")

    with pytest.raises(JudgeUnavailable), asking_for("gone"):
        limiter.enter(1, away)
    assert limiter.waiting == 0
    crowd.ask("run", "served")
    limiter.leave(lambda limiter, now: limiter.failed(first, now))
    assert crowd.end() == ["served"]
