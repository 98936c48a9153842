"""A request that a server never answers is given up; what time or a person mends is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from raypoly.core.endpoint_config import EndpointConfig
from raypoly.core.errors import JudgeRefused
from raypoly.strategies.judge.openai.completion_request import Completion
from raypoly.strategies.judge.openai.endpoint import PROBE_TOKENS, Endpoint
from tests.support.answering_server import RIGHT, AnsweringServer
from tests.support.faulty_front import running
from tests.support.faulty_handler import Answer
from tests.support.judge_faults import error_body
from workflows.waiting_endpoint import Ask, WaitingEndpoint


@dataclass
class PartlyFailing(AnsweringServer):
    """Fails what is marked `bad`; with `only_long` a long answer alone."""

    only_long: bool = False
    status: int = 500
    code: str = "engine_failed"
    left: float = float("inf")
    """How often it fails."""

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        bad = "bad" in body["messages"][0]["content"]
        if bad and self.left and not (self.only_long and body["max_tokens"] <= PROBE_TOKENS):
            self.left -= 1
            return Answer(self.status, error_body("It can't be done.", self.code))
        return super().answer(body, headers)


def asked(server: AnsweringServer, questions: Sequence[str]) -> list[Completion | BaseException]:
    """What becomes of each question."""
    config = EndpointConfig(url=server.url, name="solver", concurrency=4)

    def question(text: str, tokens: int) -> Ask:
        return lambda endpoint: endpoint.respond([{"role": "user", "content": text}], tokens, seed=2)

    async def life() -> list[Completion | BaseException]:
        endpoint = Endpoint(server.url, "solver", "", config.as_judge(0.0), backoff=0.01)
        probe = question("ok?", PROBE_TOKENS)
        waiting = WaitingEndpoint(endpoint, config, "endpoint.max_pause", probe, lambda text: None, first_wait=0.05)
        try:
            asking = [waiting.ask(question(text, 512)) for text in questions]
            return await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 60)
        finally:
            waiting.close()

    return asyncio.run(life())


@pytest.mark.parametrize("only_long", [False, True])
def test_a_question_that_fails_whenever_it_is_asked_is_given_up_and_holds_up_nobody(only_long: bool) -> None:
    questions = ["good"] * 8 + ["bad"] + ["good"] * 8 + ["bad"] + ["good"] * 8
    with running(PartlyFailing(only_long=only_long)) as server:
        found = asked(server, questions)
    assert {each.text for each in found if isinstance(each, Completion)} == {RIGHT}
    refused = [place for place, each in enumerate(found) if isinstance(each, JudgeRefused)]
    assert [questions[place] for place in refused] == ["bad", "bad"]
    assert str(found[refused[0]]) == (
        f"The judge solver at {server.url} is not serving (HTTP 500) (It can't be done. engine_failed), though it "
        "answers others."
    )


def test_a_quota_that_lasts_for_some_questions_is_waited_for() -> None:
    with running(PartlyFailing(status=429, code="insufficient_quota", left=4)) as server:
        (found,) = asked(server, ["bad"])
    assert isinstance(found, Completion)
    assert found.text == RIGHT
