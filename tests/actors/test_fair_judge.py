"""Jobs of one cluster at the shared judge: none starves another, none pays twice, and the limit is the cluster's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.actors.test_shared_judge import KEY, client, end_all, group
from tests.support.faulty_handler import Answer
from tests.support.faulty_server import Server, running
from tests.support.limited_server import LimitedServer
from tests.support.rate_enforcement import Enforcement


class Held(Server):
    """Holds every answer back until it is let go."""

    def __init__(self) -> None:
        super().__init__(key=KEY)
        self.asked, self.go = threading.Event(), threading.Event()

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        self.asked.set()
        self.go.wait(120)
        return super().answer(body, headers)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("JUDGE_TEST_KEY", KEY)
    yield
    end_all()


def test_a_job_with_four_groups_does_not_wait_behind_one_with_hundreds(tmp_path: Path) -> None:
    async def main(server: Held) -> int:
        """Requests that were served until the four were done."""
        many, few = (client(server, tmp_path, concurrency=1) for _ in range(2))
        await asyncio.gather(many.start(), few.start())
        hundreds = asyncio.gather(*(many.label(*group(i)) for i in range(200)))
        await asyncio.to_thread(server.asked.wait, 120)
        four = asyncio.gather(*(few.label(*group(1000 + i)) for i in range(4)))
        await few.stats()  # the actor takes a client's calls in order: now it has the four
        server.go.set()
        await four
        served = len(server.bodies)
        await hundreds
        return served

    with running(Held()) as server:
        served = asyncio.run(main(server))
    # a turn of the other job for each of the four, once to get a thread and once to ask
    assert served <= 20
    assert len(server.bodies) == 204


def test_what_two_jobs_ask_at_once_is_paid_for_once(tmp_path: Path) -> None:
    async def main(server: Held) -> None:
        jobs = [client(server, tmp_path) for _ in range(3)]
        await asyncio.gather(*(job.start() for job in jobs))
        asked = asyncio.gather(*(job.label(*group(7)) for job in jobs))
        for job in jobs:
            await job.stats()
        server.go.set()
        for labels in await asked:
            assert labels.ids.tolist() == [1, 2, 1]

    with running(Held()) as server:
        asyncio.run(main(server))
    assert len(server.bodies) == 1


def both_ask(kind: str, folder: Path) -> list[float]:
    """When a server refused one of two jobs that together ask more than it allows; all is answered in the end."""

    async def main(server: LimitedServer) -> None:
        jobs = [client(server, folder) for _ in range(2)]
        await asyncio.gather(*(job.start() for job in jobs))
        asked = (job.label(*group(100 * number + i)) for number, job in enumerate(jobs) for i in range(45))
        for labels in await asyncio.gather(*asked):
            assert labels.ids.tolist() == [1, 2, 1]

    limits = Enforcement(kind, 1000, 10**6) if kind == "smooth" else Enforcement(kind, 95, 10**6)
    with running(LimitedServer(limits, 0.01, 0.2)) as server:
        asyncio.run(main(server))
    assert len(server.log.served) == 90
    return server.log.refused


def test_two_jobs_together_stay_within_a_minutes_sum(tmp_path: Path) -> None:
    assert both_ask("sliding", tmp_path) == []  # the sum is known from the first answer


def test_two_jobs_together_unlearn_bursts(tmp_path: Path) -> None:
    # a refusal of what was in flight at once unlearns them; with a limiter each they are refused three or four times.
    # A machine that stalls makes bursts of its own, so it may try again.
    for attempt in range(3):
        times = both_ask("smooth", tmp_path / str(attempt))
        if sum(later - earlier > 0.5 for earlier, later in pairwise([float("-inf"), *times])) <= 2:
            return
        end_all()
    pytest.fail("refused three times and more in each of three tries")
