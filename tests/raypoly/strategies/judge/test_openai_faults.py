"""The judge behind a socket, where things go wrong: no fault ever becomes a label."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.errors import JudgeRefused, JudgeUnavailable, UsageError
from raypoly.strategies.judge import silence
from raypoly.strategies.judge.openai import ATTEMPTS, completion_request
from raypoly.strategies.judge.openai.endpoint import TRIES
from tests.raypoly.strategies.judge.openai_groups import TWO, Group, group, ids, judge, patiently, program
from tests.support.certificates import Certificates
from tests.support.faulty_handler import Answer
from tests.support.faulty_server import FAULTS, Server, programs_of, running
from tests.support.judge_faults import PASSING as EVERY_PASSING
from tests.support.judge_faults import Storm
from tests.support.ports import silent_port

PASSING = ("408", "409", "425", "429", "429-retry-after", "500", "503", "503-retry-after", "cut", "reset", "garbage",
           "not-json", "no-choices", "hang", "drip", "drip-headers", "echo-key")  # fmt: skip
"""Faults that asking again mends."""
UNUSABLE = ("wrong-indices", "missing", "duplicate", "prose")
"""Answers that a repair mends."""
NO_ANSWER = ("refusal", "filter", "length")
"""Answers that another order mends."""
CLOSED = ("401", "403", "quota")
NEVER = ("400", "404", "422")


@dataclass
class SlowServer(Server):
    """Answers about slow programs when it is told to."""

    finish: threading.Event = field(default_factory=threading.Event)

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        if any("slow" in program for program in programs_of(body)):
            self.finish.wait()
        return super().answer(body, headers)


def test_every_fault_of_the_server_is_tested_here() -> None:
    tested = {*PASSING, *UNUSABLE, *NO_ANSWER, *CLOSED, *NEVER, "400-context", "429-long", "no-usage", "refused"}
    assert tested == set(FAULTS)


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_costs_a_retry_and_changes_no_label(fault: str, tmp_path: Path) -> None:
    slow = fault in ("hang", "drip", "drip-headers")
    with running(Server(faults=[fault])) as server, judge(server, tmp_path, timeout=1.5 if slow else 30.0) as asked:
        assert ids(asked.label(*TWO)) == [1, 2, 1]
        stats = asked.stats()
    assert (stats.calls, stats.retries, stats.answers) == (2, 1, 1)
    assert stats.limited == (1 if fault.startswith("429") else 0)
    assert server.bodies[0] == server.bodies[1]


@pytest.mark.parametrize("fault", ["500", "503", "cut", "reset", "garbage", "hang", "drip"])
def test_a_fault_that_lasts_is_an_outage_and_never_a_label(fault: str, tmp_path: Path) -> None:
    with running(Server(faults=[fault], forever=True)) as server, judge(server, tmp_path, timeout=0.3) as asked:
        with pytest.raises(JudgeUnavailable, match="away since"):
            asked.label(*TWO)
        with pytest.raises(JudgeUnavailable):
            asked.probe()
        assert 2 <= asked.stats().calls <= TRIES
        assert asked.stats().away_since is not None
        before = len(server.bodies)
        with pytest.raises(JudgeUnavailable):
            asked.label(*TWO)
        assert len(server.bodies) == before, "while the server is away nobody asks it"


def test_a_judge_that_comes_back_is_found_by_the_probe_or_by_a_trial_after_a_rest(tmp_path: Path) -> None:
    with (
        running(Server(faults=["ok", *["503"] * TRIES, "ok", *["503"] * TRIES])) as server,
        judge(server, tmp_path) as asked,
    ):
        asked.label(*group(program(1), program(2)))
        with pytest.raises(JudgeUnavailable):
            asked.label(*TWO)
        asked.probe()
        assert asked.stats().away_since is None
        with pytest.raises(JudgeUnavailable):
            asked.label(*TWO)
        deadline = time.monotonic() + 300
        while asked.stats().away_since is not None:
            assert time.monotonic() < deadline
            with suppress(JudgeUnavailable):
                assert ids(asked.label(*TWO)) == [1, 2, 1]
            time.sleep(0.05)
        assert asked.stats().answers == 2


def test_a_question_that_alone_is_too_slow_is_no_outage_without_end(tmp_path: Path) -> None:
    """The first time it is one, as far as anybody can know; the probe ends it, and the question would begin another."""
    slow = group(program(1, "slow"), program(2))
    with running(SlowServer()) as server, judge(server, tmp_path, timeout=0.7) as asked:
        with pytest.raises(JudgeUnavailable, match=r"judge\.timeout=0\.7 s \(away since"):
            asked.label(*slow)
        asked.probe()
        with pytest.raises(JudgeRefused, match=r"within judge\.timeout=0\.7 s, though it answers others\.$"):
            asked.label(*slow)
        assert (asked.stats().away_since, asked.cache.size()[0]) == (None, 0)
        assert ids(asked.label(*TWO)) == [1, 2, 1], "the others are labelled at once"
        server.finish.set()
        assert ids(asked.label(*slow)) == [1, 2], "nothing is kept of it"


def test_a_question_that_is_slow_again_while_the_server_is_away_is_an_outage(tmp_path: Path) -> None:
    faults = ["hang", "hang", "ok", "hang", "hang", "hang"]
    with running(Server(faults=faults)) as server, judge(server, tmp_path, timeout=0.7) as asked:
        for _ in range(2):
            with pytest.raises(JudgeUnavailable, match="away since"):
                asked.label(*TWO)
            asked.probe()
        assert ids(asked.label(*TWO)) == [1, 2, 1]


def test_a_dead_server_is_not_hammered_by_many_threads(tmp_path: Path) -> None:
    with running(Server(faults=["500"], forever=True, latency=0.01)) as server, judge(server, tmp_path) as asked:

        def is_away(number: int) -> bool:
            with suppress(JudgeUnavailable):
                asked.label(*TWO)
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(is_away, range(160)))
    assert len(server.bodies) <= 8 * TRIES


@pytest.mark.parametrize("fault", UNUSABLE)
def test_an_answer_that_can_not_be_used_is_repaired_once(fault: str, tmp_path: Path) -> None:
    with running(Server(faults=[fault])) as server, judge(server, tmp_path) as asked:
        assert ids(asked.label(*TWO)) == [1, 2, 1]
        assert asked.stats().repairs == 1
        assert asked.stats().invalid == 0
    first, second = (body["messages"] for body in server.bodies)
    assert second[: len(first)] == first
    assert [message["role"] for message in second[len(first) :]] == ["assistant", "user"]
    assert "can't be used" in second[-1]["content"]


@pytest.mark.parametrize("fault", NO_ANSWER)
def test_a_refusal_or_a_cut_answer_is_asked_again_in_another_order(fault: str, tmp_path: Path) -> None:
    many = group(*[program(i % 2 + 1, f"a{i}") for i in range(6)])
    with running(Server(faults=[fault])) as server, judge(server, tmp_path) as asked:
        assert ids(asked.label(*many)) == [1, 2, 1, 2, 1, 2]
    first, second = (programs_of(body) for body in server.bodies)
    assert first != second
    assert sorted(first) == sorted(second)
    if fault == "length":
        assert server.bodies[1]["max_tokens"] == 2 * server.bodies[0]["max_tokens"]


@pytest.mark.parametrize(("fault", "calls"), [("refusal", ATTEMPTS), ("prose", 2 * ATTEMPTS), ("length", ATTEMPTS)])
def test_a_group_is_given_up_after_five_orders_and_nothing_is_kept(fault: str, calls: int, tmp_path: Path) -> None:
    with running(Server(faults=[fault], forever=True)) as server, judge(server, tmp_path) as asked:
        with pytest.raises(JudgeRefused, match="sum-1 in 5 attempts"):
            asked.label(*TWO)
        assert asked.stats().calls == calls
        assert asked.stats().unjudged == 1
        assert asked.cache.size()[0] == 0
        server.forever = False
        assert ids(asked.label(*TWO)) == [1, 2, 1]


@pytest.mark.parametrize(("fault", "words"), [("401", "key"), ("403", "key"), ("quota", "insufficient_quota")])
def test_a_bad_key_or_no_quota_is_told_at_once_and_not_asked_again(fault: str, words: str, tmp_path: Path) -> None:
    with running(Server(faults=[fault], forever=True)) as server, judge(server, tmp_path) as asked:
        for ask in (lambda: asked.label(*TWO), lambda: asked.label(*TWO), asked.probe):
            with pytest.raises(JudgeUnavailable, match=words):
                ask()
        assert len(server.bodies) == 2, "one question, and the probe"
        server.forever = False
        asked.probe()
        assert ids(asked.label(*TWO)) == [1, 2, 1]


@pytest.mark.parametrize("fault", NEVER)
def test_a_server_that_takes_no_request_is_a_mistake_of_the_config(fault: str, tmp_path: Path) -> None:
    with running(Server(faults=[fault])) as server, judge(server, tmp_path) as asked:
        with pytest.raises(UsageError, match=r"judge\.model"):
            asked.label(*TWO)
        assert asked.stats().calls == 1


@pytest.mark.parametrize(
    ("fault", "error", "said"), [("400", JudgeRefused, "Injected 400"), ("404", JudgeUnavailable, "404")]
)
def test_of_a_server_that_has_served_a_refusal_is_the_groups_matter_and_a_model_that_is_gone_an_outage(
    fault: str, error: type[Exception], said: str, tmp_path: Path
) -> None:
    with running(Server(faults=["ok", fault])) as server, judge(server, tmp_path) as asked:
        asked.label(*group(program(1), program(2)))
        with pytest.raises(error, match=said):
            asked.label(*TWO)


def test_a_group_too_long_for_the_model_is_refused(tmp_path: Path) -> None:
    with running(Server(faults=["400-context"])) as server, judge(server, tmp_path) as asked:
        with pytest.raises(JudgeRefused, match="context length"):
            asked.label(*TWO)
        assert ids(asked.label(*group(program(1), program(2)))) == [1, 2]


def test_a_server_that_wants_an_hours_rest_is_away(tmp_path: Path) -> None:
    with running(Server(faults=["429-long"])) as server, judge(server, tmp_path) as asked:
        started = time.monotonic()
        with pytest.raises(JudgeUnavailable, match="429"):
            asked.label(*TWO)
        assert time.monotonic() - started < 60
        asked.probe()
        assert ids(asked.label(*TWO)) == [1, 2, 1]


def test_an_answer_to_a_request_sent_before_an_outage_does_not_end_it(tmp_path: Path) -> None:
    with running(SlowServer(faults=["ok", "ok", "ok", "429-long"])) as server, judge(server, tmp_path) as asked:
        for strategy in (3, 4):  # the first answers tell the judge that it may ask twice at once
            asked.label(*group(program(strategy), program(1)))
        with ThreadPoolExecutor(1) as thread:
            before = thread.submit(asked.label, *group(program(1, "slow"), program(2)))
            while len(server.bodies) < 3:
                time.sleep(0.01)
            with pytest.raises(JudgeUnavailable, match="429"):
                asked.label(*TWO)
            server.finish.set()
            assert ids(before.result()) == [1, 2]
        assert asked.stats().away_since is not None, "else the next one would wait an hour, and nobody would say why"
        asked.probe()
        assert ids(asked.label(*TWO)) == [1, 2, 1]


def test_tokens_that_nobody_counted_are_unknown_and_not_free(tmp_path: Path) -> None:
    prices = {"price_input": 1.0, "price_output": 1.0}
    with running(Server(faults=["no-usage"])) as server, judge(server, tmp_path, **prices) as asked:
        assert asked.stats().cost_usd == 0
        assert ids(asked.label(*TWO)) == [1, 2, 1]
        assert asked.stats().cost_usd is None


def test_nobody_listening_no_such_name_and_a_silent_port_are_outages(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        silent = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        for url, said in (
            ("http://127.0.0.1:1/v1", "can't be reached"),
            ("http://no-such-host.invalid/v1", "can't be reached"),
            (silent, r"judge\.timeout=0.2"),
        ):
            timeout = 0.2 if url == silent else 5.0
            with pytest.raises(JudgeUnavailable, match=said), judge(url, tmp_path, timeout=timeout) as asked:
                asked.label(*TWO)


def test_a_judge_that_falls_silent_is_an_outage_long_before_its_timeout_and_one_that_is_slow_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "QUIET_SECONDS", 0.3)
    slow = group(program(1, "slow"), program(2))
    with running(SlowServer()) as server, judge(server, tmp_path, timeout=600) as asked:
        with ThreadPoolExecutor(2) as threads:
            long = threads.submit(asked.label, *slow)
            time.sleep(1.5)
            assert not long.done(), "new connections are made, so it is only slow"
            server.finish.set()
            assert ids(long.result()) == [1, 2]
            server.finish.clear()
            both = [threads.submit(asked.label, *group(program(i, "slow"), program(5))) for i in (3, 4)]
            while len(server.bodies) < 3:
                time.sleep(0.01)
            server.close()
            for each in both:
                with pytest.raises(JudgeUnavailable, match=r"no answer for 0\.3 s, and no new connection: "):
                    each.result()
            server.open()
            asked.probe()
        server.finish.set()
        assert ids(asked.label(*TWO)) == [1, 2, 1]


def test_a_connection_that_is_not_made_is_an_outage_after_seconds_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_request, "CONNECT_SECONDS", 0.3)
    with silent_port() as port, judge(f"http://127.0.0.1:{port}/v1", tmp_path, timeout=600) as asked:
        for ask in (lambda: asked.label(*TWO), asked.probe):
            with pytest.raises(JudgeUnavailable, match=r"reached \(no connection within 0\.3 s\) \(away since"):
                ask()
        assert asked.stats().calls == 1


def test_a_server_that_is_restarted_is_asked_again(tmp_path: Path) -> None:
    with running(Server(faults=["refused"])) as server, judge(server, tmp_path) as asked:
        with pytest.raises(JudgeUnavailable, match="Connect call failed"):
            asked.label(*TWO)
        assert ids(patiently(asked, TWO)) == [1, 2, 1]


@pytest.mark.parametrize(("fault", "words"), [("tls-certificate", "certificate"), ("tls-garbage", "SSL")])
def test_a_broken_tls_handshake_is_an_outage_that_says_so(
    fault: str, words: str, certificates: Certificates, tmp_path: Path
) -> None:
    server = Server(certificates=certificates, faults=[fault] * TRIES)
    with running(server), judge(server, tmp_path) as asked:
        with pytest.raises(JudgeUnavailable, match=words):
            asked.label(*TWO)
        asked.probe()
        assert ids(asked.label(*TWO)) == [1, 2, 1]


def test_no_error_holds_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-sesame-9921"
    monkeypatch.setenv("TEST_JUDGE_KEY", key)
    for fault in ("echo-key", "401", "429", "400", "reset", "prose", "refusal"):
        with (
            running(Server(faults=[fault], forever=True)) as server,
            judge(server, tmp_path, api_key_env="TEST_JUDGE_KEY") as asked,
        ):
            monkeypatch.setattr("raypoly.strategies.judge.openai.endpoint._LIMITED_TRIES", 1)
            with pytest.raises((JudgeUnavailable, JudgeRefused, UsageError)) as caught:
                asked.label(*TWO)
        error: BaseException | None = caught.value
        while error is not None:
            assert key not in f"{error!r} {vars(error)}", fault
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_second_server_stands_in_is_counted_and_signs_its_labels(tmp_path: Path) -> None:
    with (
        running(Server(faults=["503"], forever=True)) as first,
        running(Server()) as second,
        judge(first, tmp_path, failover_url=second.url, failover_model="spare") as asked,
    ):
        labels = asked.label(*TWO)
        assert ids(labels) == [1, 2, 1]
        assert labels.judge.startswith("openai:spare@")
        assert asked.stats().failovers == 1
        asked.probe()
        first.forever = False
        asked.probe()
        assert asked.label(*group(program(1), program(2))).judge.startswith("openai:marker@")
        assert asked.stats().failovers == 1


def test_both_servers_away_is_an_outage_that_names_both(tmp_path: Path) -> None:
    with (
        running(Server(faults=["503"], forever=True)) as first,
        judge(first, tmp_path, failover_url="http://127.0.0.1:1/v1") as asked,
    ):
        with pytest.raises(JudgeUnavailable, match=r"503.*127\.0\.0\.1:1/v1"):
            asked.label(*TWO)
        with pytest.raises(JudgeUnavailable, match="503"):
            asked.probe()


def groups_of(wave: int) -> list[Group]:
    names = range(30 * wave, 30 * (wave + 1))
    return [group(program(i % 3, f"a{i}"), program(2, f"b{i}"), program(i % 2 + 1, f"c{i}")) for i in names]


def test_a_storm_of_every_fault_loses_no_group_and_changes_no_label(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-in-the-storm-4711"
    monkeypatch.setenv("TEST_JUDGE_KEY", key)
    stormy = Server(key=key, certificates=certificates, storm=Storm(seed=3, share=0.55))
    with (
        running(stormy),
        running(Server()) as calm_server,
        judge(calm_server, tmp_path / "calm") as calm,
        judge(stormy, tmp_path / "storm", timeout=1.0, api_key_env="TEST_JUDGE_KEY") as asked,
        ThreadPoolExecutor(8) as threads,
    ):
        for wave in range(10):
            groups = groups_of(wave)
            found = list(threads.map(lambda each: ids(patiently(asked, each)), groups))
            assert found == [ids(calm.label(*each)) for each in groups]
            if set(EVERY_PASSING) <= stormy.struck.keys():
                break
        assert asked.stats().unjudged == 0
    assert set(EVERY_PASSING) <= stormy.struck.keys()


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    """One of them trusted by whoever asks in this process."""
    made = Certificates.make(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.trusted))
    return made
