"""Rate limits and the breaker: in simulated time against servers of three kinds, and against a real one."""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from raypoly.core.errors import JudgeUnavailable
from raypoly.strategies.judge.judge_usage import asking_for
from raypoly.strategies.judge.openai.rate_limiter import (
    LONGEST_REST,
    CircuitBreaker,
    RateLimiter,
    SentRequest,
    SharedLimiter,
    parse_duration,
    parse_retry_after,
)
from tests.raypoly.strategies.judge.openai_groups import group, ids, judge, program
from tests.support.faulty_front import running
from tests.support.limited_server import LimitedServer
from tests.support.rate_enforcement import KINDS, Enforcement

LIMITS = [(500, 10**9), (60, 10**9), (3000, 200_000), (10**6, 60_000)]
"""Requests and tokens a minute; in the first two requests are the tighter, then tokens."""


@dataclass
class Outcome:
    use: float = 0.0
    """Share of the tighter limit, the first minute left out."""
    refused: float = 0.0
    """Share of requests answered 429."""


def drive(
    server: Enforcement,
    limiter: RateLimiter,
    workers: int,
    minutes: int = 8,
    early: bool = True,
    others: float = 0.0,
    late: float = 0.0,
) -> Outcome:
    """Workers that always have something to ask; `early`: headers say what was left when the request came in.

    `others` is the share of the limit of requests that somebody else uses with the same key, `late` the share of
    requests that are up to three seconds on their way.
    """
    rng = random.Random(0)
    events: list[tuple[float, int, str, SentRequest | None, int, Mapping[str, str]]] = []
    now, idle, number, total, bad = 0.0, workers, 0, 0, 0
    steady = [0, 0]
    tokens = rng.randint(800, 2000)

    def push(at: float, what: str, sent: SentRequest | None, size: int, headers: Mapping[str, str]) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (at, number, what, sent, size, headers))

    if others:
        push(0.1, "other", None, 1, {})
    while now < minutes * 60:
        delay: float | None = None
        while idle and (delay := limiter.delay(now, tokens)) == 0:
            sent = limiter.start(now, tokens * rng.uniform(0.9, 1.1))
            way = rng.uniform(0, 3) if late and rng.random() < late else rng.uniform(0, 0.05)
            push(now + way, "arrives", sent, tokens, {})
            idle, tokens = idle - 1, rng.randint(800, 2000)
        coming = events[0][0] if events else float("inf")
        now = max(now, min(coming, now + delay + 0.002) if idle and delay else coming)
        while events and events[0][0] <= now:
            at, _, what, sent, size, headers = heapq.heappop(events)
            if what == "other":
                server.admit(at, size)
                push(at + 60 / (others * server.requests), "other", None, size, {})
            elif what == "arrives":
                total += 1
                served = server.admit(at, size)
                bad += not served
                if served and at > 60:
                    steady = [steady[0] + 1, steady[1] + size]
                said = server.headers(at)
                push(at + (rng.uniform(1, 4) if served else 0.02), "served" if served else "refused", sent, size, said)
            elif what == "served":
                assert sent is not None
                idle += 1
                limiter.answered(sent, at, size, headers if early else server.headers(at))
            else:
                assert sent is not None
                idle += 1
                limiter.refused(sent, at, {**headers, "retry-after": "2"})
    used = max(
        count / (minutes - 1) / limit for count, limit in zip(steady, (server.requests, server.tokens), strict=True)
    )
    return Outcome(used, bad / total)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("kind", KINDS)
def test_steady_use_is_95_percent_of_the_tighter_limit_and_429s_are_rare(
    kind: str, limits: tuple[int, int], early: bool
) -> None:
    found = drive(Enforcement(kind, *limits), RateLimiter(None, None, 64), workers=64, early=early)
    assert found.use >= 0.95
    assert found.refused <= 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_so_though_some_requests_come_late_and_by_caps_of_the_config_where_the_server_tells_nothing(
    kind: str,
) -> None:
    late = drive(Enforcement(kind, 500, 10**9), RateLimiter(None, None, 256), workers=200, minutes=3, late=0.05)
    silent = drive(Enforcement(kind, 120, 10**9, tells=False), RateLimiter(120, None, 64), workers=64)
    for found in (late, silent):
        assert found.use >= 0.95
        assert found.refused <= 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_tells_nothing_is_found_out_by_its_refusals(kind: str) -> None:
    found = drive(Enforcement(kind, 500, 10**9, tells=False), RateLimiter(None, None, 64), workers=64)
    assert found.use >= (0.65 if kind == "smooth" else 0.75)
    assert found.refused <= 0.03


def test_refusals_now_and_then_are_not_taken_for_a_limit() -> None:
    """A server that is overloaded at times refuses without a word, however little it is asked."""

    class Moody(Enforcement):
        def admit(self, now: float, tokens: int) -> bool:
            return moods.random() >= 0.05

    moods = random.Random(1)
    unlimited = Moody("bucket", 1, 10**9, tells=False)
    assert drive(unlimited, RateLimiter(None, None, 64), workers=8).use >= 80, "requests a minute"


def test_what_others_use_with_the_same_key_is_left_to_them() -> None:
    found = drive(Enforcement("sliding", 300, 10**9), RateLimiter(None, None, 64), workers=64, others=0.5)
    assert found.refused <= 0.02
    assert 0.45 <= found.use <= 0.65


def test_the_lower_of_cap_and_limit_counts() -> None:
    limiter = RateLimiter(requests=10, tokens=None, concurrency=64)
    limiter.answered(limiter.start(0.0, 1), 0.1, 1, {"x-ratelimit-limit-requests": "500"})
    assert limiter.requests.limit == 10
    limiter.answered(limiter.start(1.0, 1), 1.1, 1, {"x-ratelimit-limit-requests": "5"})
    assert limiter.requests.limit == 5


@pytest.mark.parametrize("words", ["0", "-1", "", "unlimited"])
def test_a_limit_that_is_none_is_unknown(words: str) -> None:
    limiter = RateLimiter(None, None, 64)
    headers = {"x-ratelimit-limit-requests": words, "x-ratelimit-remaining-requests": words}
    limiter.answered(limiter.start(0.0, 1), 0.1, 1, headers)
    assert limiter.requests.limit is None
    assert limiter.delay(0.2, 1) == 0


def test_the_first_call_goes_alone_and_then_more_and_more_until_a_failure() -> None:
    limiter = RateLimiter(None, None, 16)
    first = limiter.start(0.0, 1)
    assert limiter.delay(0.0, 1) is None
    limiter.answered(first, 1.0, 1, {})
    for step in range(20):
        limiter.answered(limiter.start(1.0 + step, 1), 1.5 + step, 1, {})
    assert limiter.allowed == 16
    together = [limiter.start(30.0, 1) for _ in range(16)]
    for sent in together:
        limiter.failed(sent, 31.0)
    assert limiter.allowed == 8, "failures of one moment count once"


def test_a_request_larger_than_the_whole_limit_goes_alone_rather_than_never() -> None:
    limiter = RateLimiter(None, tokens=100, concurrency=4)
    assert limiter.delay(0.0, 500) == 0
    limiter.answered(limiter.start(0.0, 500), 1.0, 500, {})
    wait = limiter.delay(1.0, 500)
    assert wait is not None
    assert 55 < wait < 61


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20ms", 0.02), ("1s", 1), ("6m0s", 360), ("1h2m3s", 3723), ("1.5", 1.5), ("soon", None), ("", None)],
)  # fmt: skip
def test_durations_of_headers_are_read(text: str, expected: float | None) -> None:
    assert parse_duration(text) == expected


def test_a_pause_comes_from_the_most_exact_header_there_is() -> None:
    assert parse_retry_after({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    assert parse_retry_after({"retry-after": "3"}) == 3
    assert parse_retry_after({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}) is None
    limiter = RateLimiter(None, None, 4)
    gone = {
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "12s",
        "x-ratelimit-remaining-requests": "9",
    }
    limiter.refused(limiter.start(0.0, 1), 1.0, gone)
    assert limiter.delay(1.0, 1) == 12


def went(limiter: RateLimiter, at: float, until: float, most: int = 10**6) -> list[float]:
    """When requests go that are asked for as soon as the one before went, and are answered at once."""
    times: list[float] = []
    while at < until and len(times) < most:
        wait = limiter.delay(at, 1)
        assert wait is not None
        at += wait
        times.append(at)
        limiter.answered(limiter.start(at, 1), at, 1, {})
    return times


def test_an_idle_minute_may_be_used_at_once_and_a_full_one_is_not_waited_out() -> None:
    times = went(RateLimiter(requests=600, tokens=None, concurrency=64), 0.0, until=300)
    assert times[500] < 1
    late = [at for at in times if at > 60]
    assert max(b - a for a, b in pairwise(late)) < 15
    assert len([at for at in times if 60 <= at < 300]) / 4 >= 0.95 * 600


def test_a_burst_that_was_refused_makes_later_bursts_even() -> None:
    limiter = RateLimiter(requests=600, tokens=None, concurrency=64)
    limiter.refused(limiter.start(0.0, 1), 0.1, {"retry-after": "1"})
    times = went(limiter, 200.0, until=300, most=50)
    assert times[-1] - times[0] > 4, "no more than a fraction of a second's worth at once"


def test_a_real_server_with_limits_is_not_overrun_by_many_threads(tmp_path: Path) -> None:
    with (
        running(LimitedServer(Enforcement("sliding", 40, 10**9), 0.01, 0.02)) as server,
        judge(server, tmp_path) as asked,
    ):
        groups = [group(program(1, f"i{i}"), program(2)) for i in range(36)]
        with ThreadPoolExecutor(9) as threads:
            assert list(threads.map(lambda each: ids(asked.label(*each)), groups)) == [[1, 2]] * 36
        stats = asked.stats()
    assert (stats.answers, stats.limited) == (36, 0)
    assert server.most_at_once > 1


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


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_closed_lets_everybody_pass_and_open_one_trial_after_a_rest() -> None:
    clock = Clock()
    breaker = CircuitBreaker("The judge", clock)
    assert breaker.check() is False
    assert "is not serving" in str(breaker.opened("is not serving"))
    for now, trial in ((0.0, False), (0.5, False), (1.0, True), (1.0, False)):
        clock.now = now
        if trial:
            assert breaker.check() is True
        else:
            with pytest.raises(JudgeUnavailable, match=r"is not serving \(away since"):
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
