"""Requests as servers take them: fields by the names that they know, answers in the forms that they give, the way past
or through a proxy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.endpoint_config import check_address, proxy_of
from raypoly.core.errors import JudgeUnavailable, UsageError
from raypoly.strategies.judge.http_judge import HttpJudge
from raypoly.strategies.judge.openai.completion_request import CompletionClient, RequestFault
from tests.raypoly.strategies.judge.openai_groups import TWO, ids, judge
from tests.raypoly.strategies.judge.test_http import server as http_server
from tests.support.faulty_handler import Answer
from tests.support.faulty_server import Server, running

GPT5 = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
NO_ZERO = (
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported."
)


def openai_error(message: str, param: str | None, code: str | None = "unsupported_parameter") -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


REFUSALS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt-5": ("max_tokens", openai_error(GPT5, "max_tokens")),
    "gpt-5 behind a proxy": ("max_tokens", openai_error(f"litellm.BadRequestError: {GPT5}", None, "400")),
    "an old api version": (
        "max_completion_tokens",
        openai_error("Unrecognized request argument supplied: max_completion_tokens", None, None),
    ),
    "o-series": ("temperature", openai_error(NO_ZERO, "temperature", "unsupported_value")),
    "litellm": ("temperature", openai_error("gpt-5 models don't support temperature=0.0. Use 1 instead.", None)),
    "one value alone": ("temperature", openai_error("invalid temperature: only 1 is allowed", None, None)),
    "no schema": ("response_format", openai_error("This response_format type is unavailable now", None)),
    "FastAPI": (
        "response_format",
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "response_format"], "msg": "Extra inputs"}]},
    ),
}


@dataclass
class Choosy(Server):
    """Refuses fields in its own words."""

    refuses: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    status: int = 400

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        for name, error in self.refuses.items():
            if name in body:
                return Answer(self.status, error)
        return super().answer(body, headers)


@pytest.mark.parametrize("who", REFUSALS)
def test_a_field_that_a_400_names_is_renamed_or_left_out_for_good(who: str) -> None:
    name, error = REFUSALS[who]
    with running(Choosy(refuses={name: error}, status=422 if "detail" in error else 400)) as server:
        wire = CompletionClient(server.url, "", 5.0)
        limit = name if name.startswith("max") else "max_tokens"
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}], limit: 9, "temperature": 0.0}
        body["response_format"] = {"type": "json_object"}
        for _ in range(2):
            assert json.loads(wire.post(body).text) == {"programs": []}
        wire.close()
    first, *others = server.bodies
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}.get(name)
    want = {key: value for key, value in first.items() if key != name} | ({other: 9} if other else {})
    assert others == [want, want], "the second question is right at once"


def test_a_model_that_takes_hardly_anything_judges_from_the_start(tmp_path: Path) -> None:
    refuses = {name: error for name, error in REFUSALS.values() if name != "max_completion_tokens"}
    with running(Choosy(refuses=refuses)) as server, judge(server, tmp_path) as asked:
        asked.probe()
        assert ids(asked.label(*TWO)) == [1, 2, 1]
    assert len(server.bodies) == 5
    assert sorted(server.bodies[-1]) == ["max_completion_tokens", "messages", "model"]


@pytest.mark.parametrize(
    ("refuses", "most"),
    [
        ({"max_tokens": openai_error(GPT5, "max_tokens"), "max_completion_tokens": openai_error("Unknown", None)}, 2),
        ({name: openai_error("It is not supported.", name) for name in ("max_tokens", "max_completion_tokens")}, 2),
        ({"model": openai_error("Unknown model 'temperature-1'", "model", "model_not_found")}, 1),
        ({"model": openai_error("temperature: 0.0, max_tokens: 256", None, None)}, 1),
        ({"messages": openai_error("Unsupported 'temperature' and 'max_tokens'", "messages.[0]")}, 1),
        ({"messages": openai_error("Unsupported: top_p", None)}, 1),
        ({"model": openai_error("max_tokens is not supported: maximum context length is 8 tokens", None)}, 1),
    ],
)
def test_what_no_other_field_mends_is_asked_a_bounded_number_of_times(
    refuses: dict[str, dict[str, Any]], most: int
) -> None:
    with running(Choosy(refuses=refuses)) as server:
        wire = CompletionClient(server.url, "", 5.0)
        with pytest.raises(RequestFault):
            wire.post({"model": "m", "messages": [{"role": "user", "content": "?"}], "max_tokens": 9, "temperature": 0})
        wire.close()
    assert len(server.bodies) == most


def test_a_field_that_is_not_optional_is_never_left_out() -> None:
    with running(Choosy(refuses={"temperature": openai_error(NO_ZERO, "temperature")})) as server:
        wire = CompletionClient(server.url, "", 5.0, optional={"seed"})
        with pytest.raises(RequestFault, match="Only the default"):
            wire.post({"model": "m", "messages": [{"role": "user", "content": "?"}], "temperature": 0.7})
        wire.close()
    assert len(server.bodies) == 1


@dataclass
class Spoken(Server):
    """Puts what it says into another form."""

    parts: bool = False
    usage: Any = None

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        content = json.loads(json.dumps(super().answer(body, headers).content)) | {"usage": self.usage}
        message = content["choices"][0]["message"]
        if self.parts:
            text, middle = message["content"], len(message["content"]) // 2
            thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": "{"}]}
            halves = [{"type": "text", "text": text[:middle]}, {"type": "text", "text": text[middle:]}]
            message["content"] = [thoughts, *halves, {"type": "image_url", "text": None}]
        return Answer(200, content)


def test_content_in_parts_is_one_text(tmp_path: Path) -> None:
    with running(Spoken(parts=True)) as server, judge(server, tmp_path) as asked:
        assert ids(asked.label(*TWO)) == [1, 2, 1]


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None}, 7),
        ({"prompt_tokens": 7.0, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": None}}, 7),
        ({"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}, 0),
        ({"prompt_tokens": 7, "completion_tokens": None}, 0),
        ({"prompt_tokens": 7}, 0),
        ({}, 0),
        (None, 0),
        ("none", 0),
    ],
)
def test_counts_that_are_missing_cost_an_unknown_sum_and_no_answer(usage: Any, tokens: int, tmp_path: Path) -> None:
    priced = {"price_input": 1.0, "price_output": 1.0}
    with running(Spoken(usage=usage)) as server, judge(server, tmp_path, **priced) as asked:
        assert ids(asked.label(*TWO)) == [1, 2, 1]
        stats = asked.stats()
    assert (stats.prompt_tokens, stats.retries, stats.cost_usd is None) == (tokens, 0, tokens == 0)


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize(
    ("variable", "proxy"),
    [("ALL_PROXY", "socks5://127.0.0.1:1"), ("http_proxy", "http://127.0.0.1:1"), ("HTTP_PROXY", "127.0.0.1:1")],
)
def test_a_server_of_this_machine_is_asked_past_every_proxy(
    variable: str, proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, proxy)
    with running(Server()) as server, judge(server, tmp_path) as asked:
        assert ids(asked.label(*TWO)) == [1, 2, 1]
    with http_server() as url:
        HttpJudge(asked.config.model_copy(update={"name": "http", "url": url})).probe()


@pytest.mark.usefixtures("no_proxy")
def test_the_proxy_is_used_and_named_where_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Server()) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1").replace("://", "://me:secret@"))
        with judge("http://192.0.2.1:9/v1", tmp_path) as asked:
            assert ids(asked.label(*TWO)) == [1, 2, 1]
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:1")
    there = {"url": "http://192.0.2.1:9/v1", "name": "http"}
    with judge("http://192.0.2.1:9/v1", tmp_path / "other") as asked:
        for each in (asked, HttpJudge(asked.config.model_copy(update=there))):
            with pytest.raises(JudgeUnavailable, match=r"through the proxy HTTP_PROXY=http://127\.0\.0\.1:1\b") as told:
                each.label(*TWO)
            assert "secret" not in str(told.value)


@pytest.mark.usefixtures("no_proxy")
def test_a_proxy_that_can_not_be_used_is_one_sentence_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raypoly.core.endpoint_config.find_spec", lambda name: None)
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@10.0.0.1:1080")
    with pytest.raises(UsageError, match=r"ALL_PROXY=socks5://10\.0\.0\.1:1080: install socksio .* NO_PROXY\.$"):
        judge("https://judge.example/v1", tmp_path).__enter__()
    with pytest.raises(UsageError, match="use an http proxy"):
        check_address("judge.url", "https://judge.example/", "judge.api_key_env", keyed=False, socks=False)
    monkeypatch.setenv("NO_PROXY", "other.example,judge.example")
    assert proxy_of("https://judge.example/v1") is None
    with judge("https://judge.example/v1", tmp_path):
        pass
    monkeypatch.setenv("HTTPS_PROXY", "http://10.0.0.1:3128")
    assert str(proxy_of("https://third.example/v1")) == "HTTPS_PROXY=http://10.0.0.1:3128", "the nearer name"


@pytest.mark.parametrize(
    "address",
    ["", "http://", "http:///v1", "https://?a", "http://:8000/v1", "http://a:port/v1", "http://a:99999/v1", "http://[::1",
     "ftp://a/v1", "localhost:8000", "//a/v1", "http://a b/v1", "http://a\n.b/v1", "http://a\x00/v1"],
)  # fmt: skip
def test_a_malformed_address_is_one_sentence(address: str) -> None:
    with pytest.raises(UsageError, match=r"^judge\.base_url=.*is no http\(s\) address with a host") as told:
        check_address("judge.base_url", address, "judge.api_key_env", keyed=False)
    assert str(told.value).isprintable()


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("[::1]", True),
        ("10.1.2.3", True),
        ("192.168.0.9", True),
        ("172.20.0.1", True),
        ("100.64.1.1", True),
        ("[fd00::1]", True),
        ("judge-0", True),
        ("vllm.team.svc.cluster.local", True),
        ("8.8.8.8", False),
        ("134744072", False),
        ("[2606:4700::1111]", False),
        ("[::ffff:8.8.8.8]", False),
        ("judge.invalid", False),
    ],
)
def test_a_key_goes_over_http_within_a_private_network_alone(host: str, private: bool) -> None:
    check_address("judge.base_url", f"http://{host}/v1", "judge.api_key_env", keyed=False)
    check_address("judge.base_url", f"https://{host}:8000/v1", "judge.api_key_env", keyed=True)
    if private:
        check_address("judge.base_url", f"http://{host}/v1", "judge.api_key_env", keyed=True)
        return
    with pytest.raises(UsageError, match=r"in clear text: give its https address, reach it by a tunnel"):
        check_address("judge.base_url", f"http://{host}/v1", "judge.api_key_env", keyed=True)
