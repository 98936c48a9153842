"""The judge and a server that others wrote: vLLM's own, with a random model, behind a proxy that breaks things."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the server computes with torch")
from transformers import AutoTokenizer

from raypoly.core.errors import JudgeRefused, JudgeUnavailable, UsageError
from raypoly.core.values import Labels, Problem, Rollout, Verdict
from raypoly.strategies.judge.gold import read_gold_groups
from raypoly.strategies.judge.openai import ATTEMPTS, OpenAIJudge
from tests.raypoly.strategies.judge.openai_groups import PARSED, ids, judge, rollout
from tests.support.certificates import Certificates
from tests.support.faulty_front import running
from tests.support.faulty_proxy import Proxy
from tests.support.judge_faults import CONTENT, PASSING, Storm
from tests.support.vllm_server import CONTEXT, MODEL, VllmServer, build, serving

Group = tuple[Problem, list[Rollout], list[Verdict]]
RANDOM: dict[str, Any] = {
    "model": MODEL,
    "answer_schema": "indexed",
    "view": "raw",
    "timeout": 120.0,
    "max_answer_tokens": 2048,
}
"""A random model fills strategies to their limit, one character a token."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("vllm") / "model")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[VllmServer]:
    with serving(model) as server:
        yield server


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    """One of them trusted by whoever asks in this process."""
    made = Certificates.make(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.trusted))
    return made


def gold(number: int, size: int = 8) -> Group:
    group = read_gold_groups()[number]
    programs = group.programs[:size]
    verdicts = [Verdict("passed", 1, 1, 0.0, evidence=PARSED)] * len(programs)
    return group.as_problem(), [rollout(program) for program in programs], verdicts


def test_groups_of_eight_are_labelled_and_counted_as_the_server_counts(
    server: VllmServer, model: Path, tmp_path: Path
) -> None:
    with judge(server.url, tmp_path, **RANDOM, votes=2) as asked:
        first = [asked.label(*gold(number)) for number in (0, 1)]
        stats = asked.stats()
        assert (stats.calls, stats.repairs, stats.invalid, stats.unjudged) == (4, 0, 0, 0)
        again = [asked.label(*gold(number)) for number in (0, 1)]
        assert asked.stats().calls == 4, "a second pass asks nothing"
        assert [ids(labels) for labels in again] == [ids(labels) for labels in first]
    assert all(len(labels.ids) == 8 and labels.known for labels in first)
    with judge(server.url, tmp_path / "one", **RANDOM) as asked:
        asked.label(*gold(0))
        tokenizer = AutoTokenizer.from_pretrained(model)
        prompt = tokenizer.apply_chat_template(asked.preview(*gold(0)), tokenize=False)
        assert asked.stats().prompt_tokens == len(tokenizer.encode(prompt))
        assert 0 < asked.stats().completion_tokens <= RANDOM["max_answer_tokens"]


def test_without_indices_in_the_grammar_a_model_that_knows_nothing_labels_nothing(
    server: VllmServer, tmp_path: Path
) -> None:
    options = {**RANDOM, "answer_schema": "portable", "max_answer_tokens": 64}
    with judge(server.url, tmp_path, **options) as asked:
        with pytest.raises(JudgeRefused, match="5 attempts"):
            asked.label(*gold(0, 3))
        stats = asked.stats()
        assert ATTEMPTS <= stats.calls <= 2 * ATTEMPTS
        assert (stats.answers, stats.unjudged) == (0, 1)
        assert asked.cache.size()[0] == 0


def test_what_goes_wrong_on_the_way_changes_no_label_of_a_real_server(
    server: VllmServer, certificates: Certificates, tmp_path: Path
) -> None:
    asking = [gold(number, 2) for number in range(12)]
    with judge(server.url, tmp_path / "calm", **RANDOM) as asked:
        expected = [ids(asked.label(*each)) for each in asking]
    assert len({tuple(found) for found in expected}) > 1, "labels that are all alike would show nothing"
    on_the_way = [fault for fault in PASSING if fault not in CONTENT]
    proxy = Proxy(to=server.url, certificates=certificates, storm=Storm(seed=1, share=0.75, faults=on_the_way))
    with running(proxy), judge(proxy.url, tmp_path / "storm", **RANDOM) as asked:
        assert [ids(_patiently(asked, each)) for each in asking] == expected
        _probe_until(asked, lambda: set(on_the_way) <= proxy.struck.keys())
        assert (asked.stats().repairs, asked.stats().unjudged) == (0, 0)


def test_a_server_that_freezes_is_away_and_is_found_again(server: VllmServer, tmp_path: Path) -> None:
    with judge(server.url, tmp_path / "before", **RANDOM) as asked:
        expected = ids(asked.label(*gold(0, 2)))
    server.freeze()
    try:
        with judge(server.url, tmp_path / "hasty", **{**RANDOM, "timeout": 0.5}) as asked:
            with pytest.raises(JudgeUnavailable, match=r"judge\.timeout=0\.5"):
                asked.label(*gold(0, 2))
            assert asked.cache.size()[0] == 0
    finally:
        server.thaw()
    with judge(server.url, tmp_path / "after", **RANDOM) as asked:
        assert ids(asked.label(*gold(0, 2))) == expected


def test_what_a_real_server_says_no_to_is_told_by_kind(server: VllmServer, tmp_path: Path) -> None:
    with (
        judge(server.url, tmp_path, **{**RANDOM, "model": "another"}) as asked,
        pytest.raises(UsageError, match=r"does not exist.*judge\.model"),
    ):
        asked.label(*gold(0))
    with (
        judge(server.url, tmp_path, **{**RANDOM, "max_answer_tokens": 2 * CONTEXT}) as asked,
        pytest.raises(UsageError, match=r"judge\.max_answer_tokens"),
    ):
        asked.label(*gold(0))
    problem, rollouts, verdicts = gold(0)
    endless = rollout("x = 0\n" * 10_000)
    with judge(server.url, tmp_path, **RANDOM, max_program_chars=100_000) as asked:
        with pytest.raises(JudgeRefused, match="context length"):
            asked.label(problem, [*rollouts[1:], endless], verdicts)
        assert asked.stats().away_since is None


def _patiently(asked: OpenAIJudge, each: Group) -> Labels:
    """As the workflow does: wait, probe, ask again."""
    while True:
        try:
            return asked.label(*each)
        except JudgeUnavailable:
            _probe_until(asked, lambda: asked.stats().away_since is None)


def _probe_until(asked: OpenAIJudge, true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.1)
        with suppress(JudgeUnavailable):
            asked.probe()
