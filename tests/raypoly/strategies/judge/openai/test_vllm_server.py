"""The judge and a server that others wrote: vLLM's own, with a random model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the server computes with torch")
from transformers import AutoTokenizer

from raypoly.core.errors import JudgeRefused, UsageError
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.strategies.judge.gold import read_gold_groups
from raypoly.strategies.judge.openai import ATTEMPTS
from tests.raypoly.strategies.judge.openai_groups import PARSED, ids, judge, rollout
from tests.support.vllm_server import CONTEXT, MODEL, build, serving

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
def server(model: Path) -> Iterator[str]:
    with serving(model) as url:
        yield url


def gold(number: int, size: int = 8) -> Group:
    group = read_gold_groups()[number]
    programs = group.programs[:size]
    verdicts = [Verdict("passed", 1, 1, 0.0, evidence=PARSED)] * len(programs)
    return group.as_problem(), [rollout(program) for program in programs], verdicts


def test_groups_of_eight_are_labelled_and_counted_as_the_server_counts(
    server: str, model: Path, tmp_path: Path
) -> None:
    with judge(server, tmp_path, **RANDOM, votes=2) as asked:
        first = [asked.label(*gold(number)) for number in (0, 1)]
        stats = asked.stats()
        assert (stats.calls, stats.repairs, stats.invalid, stats.unjudged) == (4, 0, 0, 0)
        again = [asked.label(*gold(number)) for number in (0, 1)]
        assert asked.stats().calls == 4, "a second pass asks nothing"
        assert [ids(labels) for labels in again] == [ids(labels) for labels in first]
    assert all(len(labels.ids) == 8 and labels.known for labels in first)
    with judge(server, tmp_path / "one", **RANDOM) as asked:
        asked.label(*gold(0))
        tokenizer = AutoTokenizer.from_pretrained(model)
        prompt = tokenizer.apply_chat_template(asked.preview(*gold(0)), tokenize=False)
        assert asked.stats().prompt_tokens == len(tokenizer.encode(prompt))
        assert 0 < asked.stats().completion_tokens <= RANDOM["max_answer_tokens"]


def test_without_indices_in_the_grammar_a_model_that_knows_nothing_labels_nothing(server: str, tmp_path: Path) -> None:
    options = {**RANDOM, "answer_schema": "portable", "max_answer_tokens": 64}
    with judge(server, tmp_path, **options) as asked:
        with pytest.raises(JudgeRefused, match="5 attempts"):
            asked.label(*gold(0, 3))
        stats = asked.stats()
        assert ATTEMPTS <= stats.calls <= 2 * ATTEMPTS
        assert (stats.answers, stats.unjudged) == (0, 1)
        assert asked.cache.size()[0] == 0


def test_what_a_real_server_says_no_to_is_told_by_kind(server: str, tmp_path: Path) -> None:
    with (
        judge(server, tmp_path, **{**RANDOM, "model": "another"}) as asked,
        pytest.raises(UsageError, match=r"does not exist.*judge\.model"),
    ):
        asked.label(*gold(0))
    with (
        judge(server, tmp_path, **{**RANDOM, "max_answer_tokens": 2 * CONTEXT}) as asked,
        pytest.raises(UsageError, match=r"judge\.max_answer_tokens"),
    ):
        asked.label(*gold(0))
    problem, rollouts, verdicts = gold(0)
    endless = rollout("x = 0\n" * 10_000)
    with judge(server, tmp_path, **RANDOM, max_program_chars=100_000) as asked:
        with pytest.raises(JudgeRefused, match="context length"):
            asked.label(problem, [*rollouts[1:], endless], verdicts)
        assert asked.stats().away_since is None
