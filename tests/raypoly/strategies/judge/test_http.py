"""The judge behind a socket: an outage is never a label, a bad answer is never an outage."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeRefused, JudgeUnavailable, UsageError
from raypoly.core.values import Labels, Problem, Rollout, TestSuite, Verdict
from raypoly.strategies.judge import Judge, build_judge, silence
from tests.support.judge_server import bind_judge_server
from tests.support.ports import silent_port

PROBLEM = Problem("p-1", "# sum", "f", TestSuite("calls", "[]"), answer="completion", prefix="def f(n):\n")
BODIES = [
    " return sum([x for x in range(n)])",
    " s = 0\n for x in range(n):\n  s += x\n return s",
    " return ((",
    " return sum([1 for i in range(n)])",
]


@contextmanager
def server(port: int = 0, fault: str = "", key: str = "") -> Iterator[str]:
    running = bind_judge_server(port, fault, key)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}/"
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


def judge(url: str, api_key_env: str | None = None) -> Judge:
    return build_judge(JudgeConfig(name="http", url=url, api_key_env=api_key_env))


def label(url: str, api_key_env: str | None = None) -> Labels:
    empty = np.zeros(0, np.int32)
    rollouts = [Rollout(empty, empty, empty.astype(np.float32), body, "stop", 1, 0) for body in BODIES]
    verdicts = [Verdict("wrong", 0, 1, 0.0)] * len(BODIES)
    return judge(url, api_key_env).label(PROBLEM, rollouts, verdicts)


def test_labels_come_over_the_socket() -> None:
    with server() as url:
        labels = label(url)
        judge(url).probe()
    assert labels.ids.tolist() == [1, 2, 0, 1]
    assert labels.degenerate.tolist() == [False, False, True, False]
    assert labels.judge == "http-structural-1"


def test_a_judge_that_is_gone_is_unavailable_and_serves_again_once_it_is_back() -> None:
    with server() as url:
        label(url)
    with pytest.raises(JudgeUnavailable, match="can't be reached"):
        label(url)
    with pytest.raises(JudgeUnavailable):
        judge(url).probe()
    with server(port=int(url.rsplit(":")[-1].strip("/"))) as same:
        assert same == url
        judge(url).probe()
        assert label(url).known


@pytest.mark.parametrize("fault", ["500", "503", "429", "reset"])
def test_a_judge_that_does_not_serve_is_unavailable(fault: str) -> None:
    with server(fault=fault) as url:
        with pytest.raises(JudgeUnavailable):
            label(url)
        with pytest.raises(JudgeUnavailable):
            judge(url).probe()


def test_a_silent_judge_is_unavailable_after_the_timeout() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        silent = build_judge(JudgeConfig(name="http", url=url, timeout=0.2))
        with pytest.raises(JudgeUnavailable, match=r"no answer within judge\.timeout=0\.2 s"):
            silent.probe()


def test_a_judge_that_can_not_be_reached_any_more_is_unavailable_long_before_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "QUIET_SECONDS", 0.2)
    with server(fault="slow") as url:  # for 1 s
        assert label(url).known
    monkeypatch.setattr(silence, "CONNECT_SECONDS", 0.2)
    with silent_port() as port, pytest.raises(JudgeUnavailable, match=r"no answer for 0\.2 s, and no new .* 0\.2 s\."):
        judge(f"http://127.0.0.1:{port}/").probe()


@pytest.mark.parametrize("fault", ["garbage", "400", "404"])
def test_an_answer_that_labels_nothing_is_a_refusal(fault: str) -> None:
    with server(fault=fault) as url, pytest.raises(JudgeRefused):
        label(url)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"ids": [1], "degenerate": [false]}',
        b'{"ids": [1, 0, 0, 1], "degenerate": [false, false, true, false]}',
        b'{"ids": [1, 1, "1", 1], "degenerate": [false, false, false, false]}',
        b'{"ids": [1, -1, 1, 1], "degenerate": [false, false, false, false]}',
        b"[]",
        b"",
    ],
)
def test_labels_that_do_not_fit_the_group_are_a_refusal(answer: bytes) -> None:
    with one_answer(answer) as url, pytest.raises(JudgeRefused):
        label(url)


@contextmanager
def one_answer(body: bytes) -> Iterator[str]:
    """A server that gives one fixed answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join()


def test_the_key_is_sent_and_appears_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_JUDGE_KEY", "sesame-81")
    with server(key="sesame-81") as url:
        assert label(url, "TEST_JUDGE_KEY").known
        monkeypatch.setenv("TEST_JUDGE_KEY", "wrong-key-82")
        with pytest.raises(JudgeUnavailable) as caught:
            label(url, "TEST_JUDGE_KEY")
    assert "wrong-key-82" not in f"{caught.value!r} {caught.value.__cause__!r} {judge(url, 'TEST_JUDGE_KEY')!r}"


def test_a_missing_url_or_key_is_told_at_the_start() -> None:
    with pytest.raises(UsageError, match=r"judge\.url"):
        judge("")
    with pytest.raises(UsageError, match="NO_SUCH_KEY"):
        judge("http://127.0.0.1:1/", "NO_SUCH_KEY")


def test_a_login_in_the_address_and_a_key_that_no_header_can_carry_are_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match=r"^judge\.url has a name or a password in its address") as login:
        judge("http://me:sesame-81@127.0.0.1:1/")
    for key in ("sésame-81", "se\nsame-81"):
        monkeypatch.setenv("TEST_JUDGE_KEY", key)
        with pytest.raises(UsageError, match=r"^judge\.api_key_env='TEST_JUDGE_KEY' holds characters") as told:
            judge("http://127.0.0.1:1/", "TEST_JUDGE_KEY")
        assert "same-81" not in f"{login.value} {told.value}"
