"""`raypoly watch` answers GET of two paths on loopback, reads alone, and says in a sentence what it can't do."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.finished_run import write_finished_run

COMMAND = [sys.executable, "-m", "raypoly.cli", "watch"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_finished_run(tmp_path_factory.mktemp("watched") / "run")


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    """Of a server whose end by Ctrl-C is tried too."""
    watcher = subprocess.Popen([*COMMAND, str(folder)], stderr=subprocess.PIPE, text=True)
    assert watcher.stderr is not None
    told = watcher.stderr.readline()
    assert told.startswith("The run's page: http://127.0.0.1:")
    yield int(told.split(":")[3].partition("/")[0])
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(60) == 0
    assert watcher.stderr.read() == "Stopped.\n"


def asked(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Status, ETag and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.headers.get("ETag", ""), answer.read().decode()
    connection.close()
    return found


def test_page_and_numbers_are_served_and_an_unchanged_answer_is_empty(port: int) -> None:
    status, _, page = asked(port, "/")
    assert status == 200
    assert 'data-live="' in page
    assert "connect-src 'self'" in page
    status, tag, body = asked(port, "/charts.json")
    found = json.loads(body)
    assert found["page"] in page
    assert "reward" in {chart["title"] for chart in found["numbers"]["charts"]}
    assert asked(port, "/charts.json", If_None_Match=tag) == (304, tag, "")


@pytest.mark.parametrize(
    "path",
    ["/metrics.jsonl", "/../config.json", "/..%2fetc/passwd", "//etc/passwd", "/charts.json/..", "/?x", "*"],
)
def test_no_other_path_is_there(port: int, path: str) -> None:
    assert asked(port, path)[0] == 404


def test_only_get_is_answered_and_only_under_the_names_of_this_machine(port: int) -> None:
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        assert asked(port, "/", method)[0] == 501
    for host in ("evil.example", f"evil.example:{port}", ""):
        assert asked(port, "/charts.json", Host=host)[0] == 421
    assert asked(port, "/charts.json", Host=f"localhost:{port}")[0] == 200
    with socket.socket() as elsewhere:
        elsewhere.settimeout(10)
        with pytest.raises(ConnectionRefusedError):
            elsewhere.connect(("127.0.0.2", port))


def test_nothing_is_written_into_the_run_s_folder(port: int, folder: Path) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}

    before = state()
    asked(port, "/")
    asked(port, "/charts.json")
    assert state() == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["{folder}/no"], "{folder}/no is not a run folder: it holds no config.json.\n"),
        (
            ["{folder}", "--port", "{port}"],
            "127.0.0.1:{port} can't be listened on: Address already in use; choose",
        ),
    ],
)
def test_what_can_not_be_watched_is_told_before_anything_starts(
    folder: Path, port: int, words: list[str], why: str
) -> None:
    given = [word.format(folder=folder, port=port) for word in words]
    ended = subprocess.run([*COMMAND, *given], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith(why.format(folder=folder, port=port))
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stderr
    assert not (folder / "no").exists()
