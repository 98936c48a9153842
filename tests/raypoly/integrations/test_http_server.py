"""Verdicts over HTTP: a bounded queue, a token, bad requests, a server that is killed."""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.integrations import http_server
from raypoly.integrations.http_client import VerdictClient
from raypoly.integrations.http_server import Server, Service
from raypoly.integrations.in_process import Verifier
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, LOOP, RIGHT
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with (
        Verifier([DOUBLE, BROKEN], config=ScorerConfig(workers=2)) as verifier,
        Server(("127.0.0.1", 0), Service(verifier, 40), "the-token") as server,
    ):
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def client(server: Server, token: str = "the-token", patience: float = 60.0) -> VerdictClient:
    return VerdictClient(f"http://127.0.0.1:{server.server_address[1]}", token, patience)


def answer(server: Server, body: bytes | None, path: str = "/v1/verdicts", **headers: str) -> tuple[int, str, Any]:
    given = {"Authorization": "Bearer the-token", **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_address[1]}{path}", body, given)
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return found.status, found.read().decode(), found.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_rows_name_a_problem_or_bring_it(server: Server) -> None:
    rows: list[dict[str, Any]] = [
        {"problem_id": "double", "response": RIGHT},
        {"problem": DOUBLE | {"id": "mine"}, "code": LOOP},
        {"problem_id": "double", "response": "no"},
        {"problem_id": "broken", "code": LOOP},
        {"problem_id": "double", "code": None},
    ]
    found = client(server).verdicts(rows)
    assert [verdict["status"] for verdict in found] == ["passed", "passed", "no_code", "infra", "no_code"]
    assert found[1]["approach"] == "scan"
    assert client(server).rewards(rows) == [1.0, 1.0, 0.0, None, 0.0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body is no JSON object"),
        (b"[" * 100_000, "the body is no JSON object"),
        (b'{"rows": 3}', "the body is no JSON object"),
        (b'{"rows": [3]}', "rows[0]: a row is an object"),
        (b'{"rows": [{"problem_id": "double"}]}', "rows[0]: give response or code"),
        (b'{"rows": [{"problem_id": "double", "code": 3}]}', "rows[0]: give response or code"),
        (b'{"rows": [{"problem_id": "x", "code": ""}]}', "rows[0]: there is no problem 'x'"),
        (b'{"rows": [{"problem": {"a": 1}, "code": ""}]}', "rows[0]: no known format has these columns"),
    ],
)
def test_a_bad_request_runs_nothing(server: Server, body: bytes, said: str) -> None:
    status, text, _ = answer(server, body)
    assert status == 400
    assert json.loads(text)["error"].startswith(said)


def test_other_places_sizes_and_tokens_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(server, b"{}", "/v1/other")[0] == 404
    assert answer(server, None, "/other")[0] == 404
    assert answer(server, b"{}", Authorization="Bearer \xe9")[0] == 401
    monkeypatch.setattr(http_server, "LARGEST_BODY", 10)
    assert answer(server, b"x" * 11)[0] == 413
    with pytest.raises(RuntimeError, match="answered 401"):
        client(server, "another").verdicts([{"problem_id": "double", "code": LOOP}])


def test_a_full_queue_says_when_to_come_back_and_loses_nothing(server: Server) -> None:
    slow = "import time\ndef f(n):\n time.sleep(.1)\n return 2 * n\n"
    seen: list[int] = []

    def ask(number: int) -> None:
        rows = [{"problem_id": "double", "code": f"{slow}# {number} {place}"} for place in range(15)]
        seen.append([verdict["status"] for verdict in client(server).verdicts(rows)].count("passed"))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    rows = [{"problem_id": "double", "code": f"{slow}# last {place}"} for place in range(39)]
    status, _, headers = answer(server, json.dumps({"rows": rows}).encode())
    assert status == 429
    assert int(headers["Retry-After"]) >= 1
    for thread in threads:
        thread.join()
    assert seen == [15] * 5
    text = answer(server, None, "/metrics")[1]
    assert "raypoly_programs_waiting 0" in text
    assert 'raypoly_verdicts_total{status="passed"}' in text
    assert json.loads(answer(server, None, "/health")[1])["status"] == "ok"


def test_a_server_that_is_killed_and_started_again_loses_no_verdict(tmp_path: Path) -> None:
    problems, port = tmp_path / "problems.jsonl", free_port()
    problems.write_text(json.dumps(DOUBLE))
    words = ["serve", "--problems", str(problems), "--port", str(port), "--workers", "2"]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "raypoly.cli", *words], stderr=subprocess.DEVNULL)

    served, found = start(), list[Any]()
    slow = "import time\ntime.sleep(.05)\n"
    rows = [{"problem_id": "double", "code": f"{slow}def f(n): return {2 + n % 2} * n  # {n}"} for n in range(160)]
    asking = VerdictClient(f"http://127.0.0.1:{port}", patience=120.0, rows_at_once=8)
    thread = threading.Thread(target=lambda: found.extend(asking.verdicts(rows)))
    thread.start()
    while asking.verdicts(rows[:1])[0]["status"] != "passed":
        time.sleep(0.1)
    time.sleep(1.0)  # into the middle
    assert thread.is_alive()
    served.kill()
    served.wait()
    served = start()
    thread.join()
    assert [verdict["status"] for verdict in found] == ["passed", "wrong"] * 80
    assert asking.verdicts(rows[:1])[0]["passed"]  # it serves
    served.send_signal(signal.SIGTERM)
    assert served.wait(timeout=30) == 0


def test_who_others_can_reach_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYPOLY_SERVE_TOKEN", raising=False)
    command = [sys.executable, "-m", "raypoly.cli", "serve", "--host", "0.0.0.0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "set RAYPOLY_SERVE_TOKEN to a token" in ended.stderr
