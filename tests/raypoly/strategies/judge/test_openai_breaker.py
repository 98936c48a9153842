"""The circuit breaker, by a clock of its own."""

from __future__ import annotations

import pytest

from raypoly.core.errors import JudgeUnavailable
from raypoly.strategies.judge.openai.rate_limiter import LONGEST_REST, CircuitBreaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_closed_lets_everybody_pass_and_open_nobody() -> None:
    breaker = CircuitBreaker("The judge", Clock())
    assert breaker.check() is False
    assert "is not serving" in str(breaker.opened("is not serving"))
    for _ in range(3):
        with pytest.raises(JudgeUnavailable, match=r"is not serving \(away since"):
            breaker.check()


def test_after_a_rest_one_trial_passes_and_the_others_go_on_waiting() -> None:
    clock = Clock()
    breaker = CircuitBreaker("The judge", clock)
    breaker.opened("is not serving")
    clock.now = 1.0
    assert breaker.check() is True
    with pytest.raises(JudgeUnavailable):
        breaker.check()
    breaker.closed()
    assert breaker.check() is False
    assert not breaker.away


def test_each_failed_trial_doubles_the_rest_up_to_a_minute() -> None:
    clock = Clock()
    breaker = CircuitBreaker("The judge", clock)
    breaker.opened("is not serving")
    rests = []
    for _ in range(9):
        started = clock.now
        while True:
            clock.now += 0.5
            try:
                breaker.check()
                break
            except JudgeUnavailable:
                continue
        rests.append(clock.now - started)
        breaker.opened("is still not serving", trial=True)
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert rests[-1] == LONGEST_REST


def test_stragglers_of_the_first_failure_do_not_lengthen_the_rest() -> None:
    clock = Clock()
    breaker = CircuitBreaker("The judge", clock)
    since = None
    for _ in range(8):
        breaker.opened("is not serving")
        since = since or breaker.away_since
    assert breaker.away_since == since
    clock.now = 1.0
    assert breaker.check() is True
