"""A model behind a server that misbehaves: it is asked again, waited for, or named; nothing is made up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from actors.scorer_pool import ScorerPool
from raypoly.analysis.evaluation.evaluation_config import ask_problems, evaluation_config, template_name
from raypoly.core.config import ScorerConfig
from raypoly.core.endpoint_config import EndpointConfig
from raypoly.core.errors import JudgeRefused, PausedTooLong, UsageError
from raypoly.core.values import Group, Problem, Rollout
from raypoly.data.preparing.sources import load_sources
from raypoly.rollouts.environments import Conversation, Done, Environment, EnvironmentServices, Observation
from raypoly.strategies.judge.judge_keys import key_variable_names
from raypoly.strategies.judge.openai.completion_request import Completion
from raypoly.strategies.judge.openai.endpoint import PROBE_TOKENS, Endpoint
from tests.support.answering_server import RIGHT, WRONG, AnsweringServer
from tests.support.evaluation_process import write_problems
from tests.support.faulty_front import running
from tests.support.faulty_handler import Answer
from tests.support.judge_faults import error_body
from workflows.endpoint_samples import Ask, EndpointSamples, ModelEndpoint, WaitingEndpoint
from workflows.model_evaluation import evaluate_model
from workflows.step.training_group import SkippedGroups

T = TypeVar("T")
SEEDS = (0, 1, 2, 3, 5)


@dataclass
class BreakingServer(AnsweringServer):
    """Gives these choices in place of its first answers, from the last; None leaves an answer as it is."""

    choices: list[Mapping[str, Any] | None] = field(default_factory=list)

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        whole = super().answer(body, headers)
        choice = self.choices.pop() if self.choices else None
        return whole if choice is None else Answer(200, {**whole.content, "choices": [choice]})


@dataclass
class ParticularServer(AnsweringServer):
    """Takes no `max_tokens`, and of temperatures 1, which it takes without being told."""

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        for name in ("max_tokens", "temperature"):
            if name in body:
                return Answer(400, error_body(f"Unsupported parameter: '{name}'.", "unsupported_parameter"))
        return super().answer(body, headers)


class Asked:
    """A file of problems and how a server is asked them."""

    def __init__(self, folder: Path, server: AnsweringServer, *words: str) -> None:
        file = write_problems(folder / "rows.jsonl", [f"p{n}" for n in range(3)])
        given = [f"endpoint.url={server.url}", "endpoint.name=solver", f"problems.path={file}"]
        self.config = evaluation_config(None, [*given, *words])
        problems = load_sources({"problems": self.config.problems}).candidates
        self.template = template_name(self.config, problems)
        self.problems = ask_problems(self.config, self.template, problems)
        self.notes: list[str] = []

    def do(self, work: Callable[[ModelEndpoint], Awaitable[T]]) -> T:
        async def life() -> T:
            endpoint = ModelEndpoint(self.config, self.template == "none", self.notes.append, first_wait=0.05)
            try:
                return await work(endpoint)
            finally:
                endpoint.close()

        return asyncio.run(life())

    def sample(self) -> dict[int, tuple[Rollout, ...]]:
        return self.do(self.samples)

    async def samples(self, endpoint: ModelEndpoint) -> dict[int, tuple[Rollout, ...]]:
        work = self.work(endpoint)
        return {slot: rollouts async for slot, rollouts in work.sample(self.problems)}

    def verdicts(self) -> list[tuple[str, str]]:
        """Status and detail of each response to the first problem, for a server that answered before."""

        async def judged(endpoint: ModelEndpoint) -> list[tuple[str, str]]:
            await endpoint.check()
            work, it = self.work(endpoint), self.problems[0]
            ((_, rollouts),) = [found async for found in work.sample([it])]
            return [(each.status, each.detail) for each in await work.verdicts(Group(0, 0, it.id, rollouts), it)]

        return self.do(judged)

    def work(self, endpoint: ModelEndpoint) -> EndpointSamples:
        scorers = ScorerPool(ScorerConfig(), {})  # not started: nothing is scored here
        skipped = SkippedGroups(1.0, self.notes.append)
        return EndpointSamples(endpoint, scorers, skipped, lambda problem: SEEDS, self.config)


def test_every_response_comes_through_refusals_and_errors(tmp_path: Path) -> None:
    faults = ["429-retry-after", "500", "reset", "garbage", "503"]
    with running(AnsweringServer(faults=faults)) as server:
        found = Asked(tmp_path, server).sample()
    assert sorted(found) == [0, 1, 2]
    for rollouts in found.values():
        assert [rollout.text for rollout in rollouts] == [WRONG if seed % 2 else RIGHT for seed in SEEDS]
        assert [rollout.finish_reason for rollout in rollouts] == ["length", "stop", "stop", "stop", "length"]
        assert [rollout.seed for rollout in rollouts] == list(SEEDS)
    assert sum(server.struck[fault] for fault in faults) == len(faults)
    sent = server.bodies[-1]
    assert (sent["temperature"], sent["max_tokens"], sent["messages"][0]["role"]) == (0.8, 512, "system")


def test_a_server_that_knows_other_fields_is_asked_by_them_but_at_no_other_temperature(tmp_path: Path) -> None:
    with running(ParticularServer()) as server:
        with pytest.raises(UsageError, match=r"'temperature'.*: see prompts\.template, generator\.temperature, "):
            Asked(tmp_path, server).do(ModelEndpoint.check)
        found = Asked(tmp_path, server, "generator.temperature=1").sample()
    assert [rollout.text for rollout in found[2]] == [WRONG if seed % 2 else RIGHT for seed in SEEDS]
    assert {"max_tokens", "temperature"}.isdisjoint(server.bodies[-1])
    assert server.bodies[-1]["max_completion_tokens"] == 512


def test_a_prompt_of_its_own_is_continued_and_further_fields_are_sent(tmp_path: Path) -> None:
    with running(AnsweringServer()) as server:
        asked = Asked(
            tmp_path, server, "prompts.template=none", "endpoint.extra={top_p: 0.5}", "generator.max_tokens=7"
        )
        asked.do(ModelEndpoint.check)
        asked.sample()
    assert {body["top_p"] for body in server.bodies} == {0.5}
    assert server.bodies[-1]["prompt"].startswith("Write f that gives twice")
    assert (server.bodies[-1]["max_tokens"], "messages" in server.bodies[-1]) == (7, False)


class Twice(Environment):
    """Answers a first turn."""

    async def respond(
        self, problem: Problem, conversation: Conversation, services: EnvironmentServices
    ) -> Observation | Done:
        return Done() if len(conversation.turns) > 1 else Observation("Once more. " + "x" * 300)


@pytest.mark.parametrize("template", ["chat", "none"])
def test_a_conversation_goes_on_as_messages_or_as_text(tmp_path: Path, template: str) -> None:
    turns = [f"environment.name={__name__}:Twice", "environment.max_observation_tokens=32"]
    with running(AnsweringServer()) as server:
        found = Asked(tmp_path, server, f"prompts.template={template}", *turns).sample()
    for rollouts in found.values():
        assert [len(rollout.turns) for rollout in rollouts] == [1 if seed % 5 == 0 else 3 for seed in SEEDS]
        assert [rollout.seed for rollout in rollouts] == list(SEEDS)
        for rollout in rollouts:
            assert [turn.role for turn in rollout.turns] in (["assistant"], ["assistant", "user", "assistant"])
            assert rollout.text in (RIGHT, WRONG)
    second = [body for body in server.bodies if "left out" in json.dumps(body)]
    assert second, "the answer is cut to what fits"
    for body in second:
        if template == "chat":
            assert [message["role"] for message in body["messages"]][-3:] == ["user", "assistant", "user"]
        else:
            assert body["prompt"].index("Write f") < body["prompt"].index("Once more.")


def test_an_outage_pauses_everybody_and_nothing_is_lost(tmp_path: Path) -> None:
    with running(AnsweringServer()) as server:
        server.close()
        asked = Asked(tmp_path, server)
        threading.Timer(6.0, server.open).start()
        found = asked.sample()
    assert {rollout.text for rollouts in found.values() for rollout in rollouts} == {RIGHT, WRONG}
    assert len([note for note in asked.notes if note.startswith("paused: The endpoint's model solver at")]) == 1
    assert asked.notes[-1].startswith("the endpoint answers again after")


def test_an_outage_beyond_max_pause_ends_with_a_sentence(tmp_path: Path) -> None:
    with running(AnsweringServer()) as server:
        server.close()
        with pytest.raises(PausedTooLong, match=r"stayed away for endpoint\.max_pause=0\.1 s; everything is committed"):
            Asked(tmp_path, server, "endpoint.max_pause=0.1").sample()


def test_an_answer_that_the_server_broke_off_is_asked_for_again(tmp_path: Path) -> None:
    broken: list[Mapping[str, Any]] = [
        {"finish_reason": "error", "message": {"role": "assistant", "content": ""}},
        {"finish_reason": "abort", "message": {"role": "assistant", "content": "```python\ndef f(x):\n"}},
        {"finish_reason": "stop"},
    ]
    choices = [choice for each in broken for choice in (each, None)]
    with running(BreakingServer(choices=choices)) as server:
        found = Asked(tmp_path, server, "endpoint.concurrency=1").sample()
    for rollouts in found.values():
        assert [rollout.text for rollout in rollouts] == [WRONG if seed % 2 else RIGHT for seed in SEEDS]
        assert {rollout.weight_version for rollout in rollouts} == {0}


def test_an_answer_that_the_server_filtered_is_a_refusal(tmp_path: Path) -> None:
    filtered = {"finish_reason": "content_filter", "message": {"role": "assistant", "content": None}}
    with running(BreakingServer(choices=[filtered, None])) as server:
        said = Asked(tmp_path, server, "endpoint.concurrency=1").verdicts()
    assert said == [("infra", "the endpoint filtered its answer (finish_reason content_filter).")] * len(SEEDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["endpoint.name=unknown"], "The model `unknown` does not exist. model_not_found): see --endpoint and --name."),
        (["endpoint.url=ftp://a"], "--endpoint=ftp://a is no http(s) address"),
        (["endpoint.url=http:///v1"], "--endpoint=http:///v1 is no http(s) address"),
        (["endpoint.url=http://me:secret@a/v1"], "--endpoint has a name or a password in its address"),
        (["endpoint.api_key_env=NOT_THERE"], "endpoint.api_key_env='NOT_THERE' is not set"),
        (["endpoint.api_key_env=WRONG_KEY"], "refuses the key (HTTP 401)"),
        (["endpoint.url=http://127.0.0.1:9/v1"], "127.0.0.1:9/v1 can't be reached ("),
    ],
)
def test_what_is_wrong_at_the_start_is_one_sentence_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setenv("WRONG_KEY", "sk-wrong")
    monkeypatch.setenv("RIGHT_KEY", "sk-right")
    with running(AnsweringServer(key="sk-right")) as server, pytest.raises(UsageError) as raised:
        Asked(tmp_path, server, "endpoint.api_key_env=RIGHT_KEY", *words).do(ModelEndpoint.check)
    assert said in str(raised.value)
    assert "sk-" not in str(raised.value)


def test_a_ray_that_the_command_starts_does_not_inherit_the_key(tmp_path: Path) -> None:
    asked = Asked(tmp_path, AnsweringServer(url="http://127.0.0.1:9/v1"), "endpoint.api_key_env=SERVER_KEY")
    assert key_variable_names(asked.config.of_a_run().judge) == ["SERVER_KEY"]


def test_a_server_that_can_not_be_asked_leaves_no_folder_behind(tmp_path: Path) -> None:
    with running(AnsweringServer()) as server:
        asked = Asked(tmp_path, server, "endpoint.name=unknown", f"run.dir={tmp_path / 'run'}")
        with pytest.raises(UsageError, match="The model `unknown` does not exist"):
            evaluate_model(asked.config)
    assert not (tmp_path / "run").exists()


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
