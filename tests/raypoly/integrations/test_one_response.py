"""What every adapter asks: a row or an id, in this process or of a server; unknown is None or raises."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from raypoly.core.errors import Unknown, UsageError
from raypoly.integrations.http_server import Server, Service
from raypoly.integrations.in_process import Verifier
from raypoly.integrations.one_response import GroundTruth, known_rewards, known_rewards_async, rewards, rewards_async
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT
from tests.support.faulty_front import Front, running
from tests.support.faulty_handler import Answer


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Verifier([DOUBLE, BROKEN], workers=1) as verifier, Server(("127.0.0.1", 0), Service(verifier, 40)) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_ground_truth_is_a_row_or_its_json() -> None:
    pairs: list[tuple[GroundTruth, str]] = [(DOUBLE, RIGHT), (json.dumps(DOUBLE), "no"), (BROKEN, RIGHT)]
    assert rewards(pairs) == asyncio.run(rewards_async(pairs)) == [1.0, 0.0, None]
    assert known_rewards(pairs[:2]) == asyncio.run(known_rewards_async(pairs[:2])) == [1.0, 0.0]
    with pytest.raises(Unknown, match="No verdict for 1 of 3 responses"):
        known_rewards(pairs)


def test_a_server_knows_ids_and_takes_rows(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_SERVE_URL", server)
    assert rewards([("double", RIGHT), (DOUBLE, "no"), ("broken", RIGHT)]) == [1.0, 0.0, None]
    with pytest.raises(RuntimeError, match="there is no problem 'treble'"):
        rewards([("treble", RIGHT)])


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        ("double", "'double' is an id, which only a server knows: set RAYPOLY_SERVE_URL"),
        ("{no", "A ground truth is no JSON: "),
        ({"a": 1}, "A ground truth can't be used: no known format has these columns"),
    ],
)
def test_a_ground_truth_that_cannot_be_used_is_said_and_is_no_reward(truth: GroundTruth, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        rewards([(truth, RIGHT)])


def test_only_what_is_unknown_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Recovering(Front):
        def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
            asked.append(len(body["rows"]))
            found = ["infra", "passed"] if len(asked) == 1 else ["passed"]
            return Answer(200, {"verdicts": [{"status": it, "passed": it == "passed"} for it in found]})

    with running(Recovering()) as front:
        monkeypatch.setenv("RAYPOLY_SERVE_URL", front.url.removesuffix("/v1"))
        assert rewards([("double", RIGHT), ("double", RIGHT)]) == [1.0, 1.0]
    assert asked == [2, 1]
