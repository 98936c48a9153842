"""The cache of answers: what was paid for survives kills, other processes and damage, within its size."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.errors import JudgeRefused
from raypoly.strategies.judge.openai.answer_cache import AnswerCache, InFlightQuestions, cache_folder, cache_key
from raypoly.strategies.judge.openai.judge_reply import AssignedCluster
from tests.raypoly.strategies.judge.openai_groups import TWO, ids, judge
from tests.support.faulty_handler import Answer
from tests.support.faulty_server import Server, running

ANSWER = {"abc": AssignedCluster(1, "heap"), "def": AssignedCluster(0, "")}
WRITER = """
import sys
from pathlib import Path
from raypoly.strategies.judge.openai.answer_cache import AnswerCache
from raypoly.strategies.judge.openai.judge_reply import AssignedCluster
cache = AnswerCache(Path(sys.argv[1]), 16)
for i in range(100000):
    cache.put(f"{sys.argv[2]}-{i}", {"p": AssignedCluster(i, "way")})
    print(i, flush=True)
"""


def test_what_was_put_before_a_kill_is_there_after_it_whoever_else_was_writing(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], stdout=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    said: dict[str, int] = {}
    for name, writer in zip("ab", writers, strict=True):
        assert writer.stdout is not None
        for _ in range(8):
            said[name] = int(writer.stdout.readline())
    for name, writer in zip("ab", writers, strict=True):
        writer.send_signal(signal.SIGKILL)
        assert writer.stdout is not None
        said[name] = max([said[name], *[int(line) for line in writer.stdout.read().splitlines()]])
        writer.wait()
        writer.stdout.close()
    cache = AnswerCache(tmp_path, 16)
    for name, last in said.items():
        assert all(cache.get(f"{name}-{i}") == {"p": AssignedCluster(i, "way")} for i in range(last + 1))
    assert cache.failures == 0


def test_the_least_recently_used_answers_go_when_the_cache_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("raypoly.strategies.judge.openai.answer_cache.time.time", lambda: now)
    cache = AnswerCache(tmp_path, 0.125)
    for i in range(1024):
        now += 4000
        cache.put(f"k{i}", {"p": AssignedCluster(i, "w" * 200)})
        assert cache.get("k0") is not None, "what is used stays"
    count, size = cache.size()
    assert size <= (1 << 17) + 64 * 500
    assert count < 400
    assert cache.get("k1023") is not None
    assert cache.get("k1") is None


def test_a_damaged_file_is_put_aside_and_the_cache_begun_anew(tmp_path: Path) -> None:
    AnswerCache(tmp_path, 1).put("k", ANSWER)
    file = tmp_path / "answers.sqlite"
    for extra in tmp_path.glob("answers.sqlite-*"):
        extra.unlink()
    file.write_bytes(b"not a database at all, " * 500)
    cache = AnswerCache(tmp_path, 1)
    assert cache.get("k") is None
    cache.put("k", ANSWER)
    assert cache.get("k") == ANSWER
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


def test_a_cache_that_can_not_be_written_costs_calls_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with running(Server()) as server, judge(server, tmp_path / "file" / "cache") as asked:
        assert ids(asked.label(*TWO)) == [1, 2, 1]
        assert ids(asked.label(*TWO)) == [1, 2, 1]
        assert asked.stats().calls == 2
    assert len([record for record in caplog.records if "can't be used" in record.message]) == 1


def spoil(cache: AnswerCache, answer: str) -> None:
    with sqlite3.connect(cache.path) as connection:
        connection.execute("UPDATE answers SET answer = ?", (answer,))


def test_an_answer_that_does_not_fit_the_question_is_asked_for_anew(tmp_path: Path) -> None:
    with running(Server()) as server, judge(server, tmp_path) as asked:
        asked.label(*TWO)
        spoil(asked.cache, '{"p": [1, "way"]}')
        assert ids(asked.label(*TWO)) == [1, 2, 1]
        spoil(asked.cache, "no json")
        assert ids(asked.label(*TWO)) == [1, 2, 1]
        assert asked.stats().calls == 3


def test_it_can_be_cleared_and_turned_off(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path, 1)
    cache.put("k", ANSWER)
    assert cache.size()[0] == 1
    cache.clear()
    assert cache.size()[0] == 0
    off = AnswerCache(tmp_path / "off", 0)
    off.put("k", ANSWER)
    assert off.get("k") is None
    assert not (tmp_path / "off").exists()


def test_parts_of_a_key_can_not_run_into_each_other() -> None:
    assert cache_key("ab", "c") != cache_key("a", "bc")
    assert cache_key("a") != cache_key("a", "")


def test_it_lies_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path))
    assert cache_folder(None) == tmp_path / "judge"
    monkeypatch.delenv("RAYPOLY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / "raypoly" / "judge"


def test_nobody_else_may_look_into_a_folder_that_it_made(tmp_path: Path) -> None:
    AnswerCache(tmp_path / "judge", 1)
    assert os.stat(tmp_path / "judge").st_mode & 0o077 == 0


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
