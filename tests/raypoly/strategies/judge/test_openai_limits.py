"""Rate limits: the limiter is run against servers of three kinds in simulated time, and against a real one."""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from raypoly.strategies.judge.openai.rate_limiter import RateLimiter, SentRequest, parse_duration, parse_retry_after
from tests.raypoly.strategies.judge.openai_groups import group, ids, judge, program
from tests.support.faulty_server import Server, running
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
def test_it_is_so_from_the_second_minute_on_though_some_requests_come_late(kind: str) -> None:
    found = drive(Enforcement(kind, 500, 10**9), RateLimiter(None, None, 256), workers=200, minutes=3, late=0.05)
    assert found.use >= 0.95
    assert found.refused <= 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_caps_of_the_config_do_the_same_for_a_server_that_tells_nothing(kind: str) -> None:
    found = drive(Enforcement(kind, 120, 10**9, tells=False), RateLimiter(120, None, 64), workers=64)
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


def test_who_comes_while_the_limit_is_used_up_by_others_need_not_wait_for_the_minute_to_end() -> None:
    limiter = RateLimiter(requests=600, tokens=None, concurrency=64)
    at, went = 0.0, []
    while at < 300:
        wait = limiter.delay(at, 1)
        assert wait is not None
        at += wait
        went.append(at)
        limiter.answered(limiter.start(at, 1), at, 1, {})
    assert went[500] < 1, "an idle minute may be used at once"
    late = [at for at in went if at > 60]
    assert max(b - a for a, b in pairwise(late)) < 15
    assert len([at for at in went if 60 <= at < 300]) / 4 >= 0.95 * 600


def test_a_burst_that_was_refused_makes_later_bursts_even() -> None:
    limiter = RateLimiter(requests=600, tokens=None, concurrency=64)
    limiter.refused(limiter.start(0.0, 1), 0.1, {"retry-after": "1"})
    at, went = 200.0, []
    for _ in range(50):
        wait = limiter.delay(at, 1)
        assert wait is not None
        at += wait
        went.append(at)
        limiter.answered(limiter.start(at, 1), at, 1, {})
    assert went[-1] - went[0] > 4, "no more than a fraction of a second's worth at once"


def test_a_real_server_with_limits_is_not_overrun_by_many_threads(tmp_path: Path) -> None:
    with running(Server(requests_per_minute=40, latency=0.01)) as server, judge(server, tmp_path) as asked:

        def work(worker: int) -> None:
            for i in range(4):
                assert ids(asked.label(*group(program(1, f"w{worker}i{i}"), program(2)))) == [1, 2]

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = asked.stats()
    assert (stats.answers, stats.limited) == (36, 0)
