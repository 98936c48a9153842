"""kill -9 of the shared judge at random moments: what it had read of the server is not paid for twice.

An answer has arrived when the judge's process has read its last byte. The process is stopped before it is killed, so
that what it had read can be told from what still lay in the kernel, and what it had kept from what it was about to.
Between the read and the cache's commit lie a few milliseconds of parsing: the long form, which wants a machine of its
own, measures how often a kill falls into them.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from actors.judge import JudgeClient
from tests.actors.test_scorer import is_ours
from tests.actors.test_shared_judge import KEY, client, end_all, group
from tests.support.faulty_handler import Answer
from tests.support.faulty_server import Server, running
from tests.support.judge_faults import programs_of

GROUPS = 40
"""In flight or waiting when the judge is killed."""


class Telling(Server):
    """Remembers what it was asked, and when each answer had been handed to the kernel."""

    def __init__(self) -> None:
        super().__init__(key=KEY)
        self._rng = random.Random(0)
        self.asked: Counter[str] = Counter()
        self.sent: dict[str, float] = {}
        self._mine = threading.local()

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        self._mine.name = "\n".join(sorted(programs_of(body)))
        with self._lock:
            self.asked[self._mine.name] += 1
            seconds = self._rng.uniform(0.05, 1.5)
        time.sleep(seconds)  # answers come one by one, as they do in life
        return super().answer(body, headers)

    def gone(self) -> None:
        super().gone()
        with self._lock:
            self.sent.setdefault(self._mine.name, time.monotonic())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telling]:
    monkeypatch.setenv("JUDGE_TEST_KEY", KEY)
    with running(Telling()) as found:
        yield found
    end_all()


def judges() -> list[int]:
    """The judge actors' processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"ray::Judge" in entry.read_bytes() and is_ours(int(entry.parent.name)):
                found.append(int(entry.parent.name))
    return found


def unread(port: int) -> int:
    """Connections to the server whose client has not read all that came."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(line[2].split(":")[1], 16) == port and int(line[4].split(":")[1], 16) > 0 for line in lines)


def kept(folder: Path) -> int:
    """Answers that the cache holds."""
    with closing(sqlite3.connect(f"file:{folder / 'answers.sqlite'}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM answers").fetchone()
    return int(count)


@pytest.mark.parametrize("kills", [3, pytest.param(24, marks=pytest.mark.slow)])
def test_what_had_arrived_before_a_kill_is_not_asked_again(server: Telling, tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    arrived, lost = 0, 0

    async def one(judge: JudgeClient, number: int) -> None:
        nonlocal arrived, lost
        before = len(server.sent)
        asked = asyncio.gather(*(judge.label(*group(1000 * number + i)) for i in range(GROUPS)))
        enough = before + rng.randint(1, GROUPS - 10)
        while len(server.sent) < enough or len(server.asked) < GROUPS * (number + 1):
            assert not asked.done(), asked
            await asyncio.sleep(0.001)
        await asyncio.sleep(rng.uniform(0, 0.02))
        known, moment = set(server.sent) - seen, time.monotonic()
        for process in judges():
            os.kill(process, signal.SIGSTOP)
        in_kernel, committed = unread(server.port), kept(tmp_path) - GROUPS * number
        for process in judges():
            os.kill(process, signal.SIGKILL)
        for labels in await asyncio.wait_for(asked, 300):
            assert labels.ids.tolist() == [1, 2, 1]
        twice = {name for name in server.sent.keys() - seen if server.asked[name] > 1}
        assert len(twice) <= GROUPS - committed, "nothing that was kept"
        complete = {name for name in known if server.sent[name] <= moment}
        arrived, lost = arrived + len(complete), lost + max(0, len(complete & twice) - in_kernel)
        seen.update(server.sent)

    async def main() -> None:
        for number in range(kills):
            judge = client(server, tmp_path)  # each has a run's budget of retries, which progress would refill
            await judge.start()
            await one(judge, number)
        calls = sum(server.asked.values())
        for number in range(kills):
            await asyncio.gather(*(judge.label(*group(1000 * number + i)) for i in range(GROUPS)))
        assert sum(server.asked.values()) == calls, "all of them are kept"

    seen = set[str]()
    asyncio.run(main())
    print(f"{kills} kills, {arrived} answers had arrived, {lost} of them were asked for again")
    assert arrived >= kills
    if kills == 24:
        assert lost <= kills, "a kill may fall between the reading of one answer and its commit, and no wider"
