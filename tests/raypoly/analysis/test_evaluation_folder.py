"""An evaluation's folder is named by what is measured, its rounds only grow, and bad input is one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from raypoly.analysis.evaluation.evaluation_config import (
    ModelEvaluationConfig,
    ask_problems,
    evaluation_config,
    is_plain,
    template_name,
    weights_digest,
    with_room,
)
from raypoly.analysis.evaluation.evaluation_folder import ROUND, EvaluationFolder, plan_rounds
from raypoly.core.errors import UsageError
from raypoly.data.preparing.candidates import Candidate
from raypoly.data.preparing.sources import load_sources
from tests.support.evaluation_process import write_problems
from tests.support.preparation_rows import candidate, write_rows
from tests.support.random_model import random_model

PROBLEMS = [candidate("a"), candidate("b", "Say what you hear.")]


def config(*words: str) -> ModelEvaluationConfig:
    return evaluation_config(None, ["model.path=/somewhere/mine", "problems.path=rows.jsonl.gz", *words])


def name_of(chosen: ModelEvaluationConfig, weights: str | None = "w", problems: list[Candidate] = PROBLEMS) -> str:
    return EvaluationFolder.of(chosen, weights, problems).location.name


def test_a_folder_is_named_by_weights_problems_and_asking_and_not_by_samples_or_paths() -> None:
    first = name_of(config())
    assert first.startswith("evaluate-mine-rows-")
    assert name_of(config("sampling.samples=64", "scorer.workers=7")) == first
    moved = evaluation_config(None, ["model.path=/elsewhere/mine", "problems.path=/far/rows.jsonl"])
    assert name_of(moved) == first
    others = {
        name_of(config(), "other"),
        name_of(config(), problems=PROBLEMS[:1]),
        name_of(config("generator.temperature=0.2")),
        name_of(config("sampling.chunk=8")),
        name_of(config("sampling.seed=1")),
    }
    assert len(others - {first}) == 5


def test_a_servers_model_is_named_and_not_its_address() -> None:
    def endpoint(url: str, name: str) -> ModelEvaluationConfig:
        return evaluation_config(None, [f"endpoint.url={url}", f"endpoint.name={name}", "problems.path=p.jsonl"])

    one = name_of(endpoint("http://a/v1", "solver"), None)
    assert name_of(endpoint("http://b/v1", "solver"), None) == one
    assert name_of(endpoint("http://a/v1", "other"), None) != one


def test_rounds_only_grow_and_begin_at_multiples(tmp_path: Path) -> None:
    def planned(folder: str, *asked: int) -> list[tuple[int, int]]:
        found: list[range] = []
        for samples in asked:
            chosen = config(f"run.dir={tmp_path / folder}")
            store, lease = EvaluationFolder.of(chosen, "w", PROBLEMS).open()
            found = plan_rounds(store, samples)
            lease.release()
        return [(each.start, each.stop) for each in found]

    at_once = planned("once", 4 * ROUND)
    assert at_once == [(16 * n, 16 * n + 16) for n in range(4)]
    assert planned("grown", ROUND, 4 * ROUND) == at_once
    assert planned("odd", 10, 40) == [(0, 10), (10, 16), (16, 32), (32, 40)]
    assert planned("odd", 10) == [(0, 10)], "fewer than exist need no others"


def test_a_folder_of_other_weights_or_of_something_else_is_refused(tmp_path: Path) -> None:
    chosen = config(f"run.dir={tmp_path / 'run'}")
    EvaluationFolder.of(chosen, "these", PROBLEMS).open()[1].release()
    with pytest.raises(UsageError, match=r'is another one: weights is "those" now and was "these"\. Use the old'):
        EvaluationFolder.of(chosen, "those", PROBLEMS).open()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match=r"holds letter\.txt and no evaluation"):
        EvaluationFolder.of(config(f"run.dir={tmp_path / 'full'}"), "w", PROBLEMS).open()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model.path=m"], "Name the problems: --problems FILE"),
        (["model.path=m", "problems.path=p", "sampling.greedy=true"], "ask for --samples 1"),
        (["model.path=m", "problems.path=p", "sampling.sample=3"], "did you mean sampling.samples?"),
        (["model.path=m", "problems.path=p", "endpoint.url=http://a/v1"], "are of --model"),
        (["model.path=m", "problems.path=p", "model.lora_rank=4"], "model.lora_rank is of training"),
        (["model.path=m", "problems.path=p", "sampling.samples=0"], "a whole number, at least 1"),
        (["model.path=m", "problems.path=p", "problems.template=base"], "prompts are set by prompts.template."),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        evaluation_config(None, words)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_no_model_is_refused_and_any_changed_weight_is_another_digest(tmp_path: Path) -> None:
    model = random_model(tmp_path / "model")
    first = weights_digest(model)
    (model / "README.md").write_text("It is mine.")
    assert weights_digest(model) == first
    data = bytearray((model / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (model / "model.safetensors").write_bytes(data)
    assert weights_digest(model) != first
    (model / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="copy its weights again"):
        weights_digest(model)
    with pytest.raises(UsageError, match=r"it has no config\.json that can be read"):
        weights_digest(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"train": {}}))
    with pytest.raises(UsageError, match="is a run's folder: --run takes it"):
        weights_digest(tmp_path)


def test_the_chat_template_is_used_where_there_is_one(tmp_path: Path) -> None:
    plain = random_model(tmp_path / "plain")
    chatty = shutil.copytree(plain, tmp_path / "chatty")
    (chatty / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    file = write_problems(tmp_path / "rows.jsonl", ["p1"])
    prompts = {}
    for model in (plain, chatty):
        chosen = evaluation_config(None, [f"model.path={model}", f"problems.path={file}"])
        problems = load_sources({"problems": chosen.problems}).candidates
        template = template_name(chosen, problems)
        prompts[template] = ask_problems(chosen, template, problems)[0].problem.prompt
    assert prompts["none"].startswith("Write f that gives twice")
    assert prompts["chat"].startswith("<system>You are an expert")
    assert "<user>Solve this problem" in prompts["chat"]
    asked = evaluation_config(None, [f"model.path={plain}", f"problems.path={file}", "prompts.template=chat"])
    with pytest.raises(UsageError, match=r"plain is a tokenizer without a chat template"):
        ask_problems(asked, "chat", problems)
    words = [f"problems.path={file}", "endpoint.url=http://a/v1", "endpoint.name=m"]
    served = evaluation_config(None, words)
    assert not is_plain(template_name(served, problems))
    messages = json.loads(ask_problems(served, "chat", problems)[0].problem.prompt)
    assert [message["role"] for message in messages] == ["system", "user"]


def test_in_a_chat_problems_that_ask_for_a_value_are_asked_by_their_own_words(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "prompt": f"Say {n}.", "tests": {"kind": "answer", "answer": str(n)}} for n in range(2)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    served = evaluation_config(None, [f"problems.path={file}", "endpoint.url=http://a/v1", "endpoint.name=m"])
    problems = load_sources({"problems": served.problems}).candidates
    template = template_name(served, problems)
    assert template == "message"
    asked = ask_problems(served, template, problems)[1].problem
    assert json.loads(asked.prompt) == [{"role": "user", "content": "Say 1."}]
    model = random_model(tmp_path / "plain")
    plain = evaluation_config(None, [f"model.path={model}", f"problems.path={file}"])
    assert template_name(plain, problems) == "none"


def test_prompts_have_room_or_the_sentence_says_how_much_there_is(tmp_path: Path) -> None:
    model, file = random_model(tmp_path / "model"), write_problems(tmp_path / "rows.jsonl", ["p1", "p2"])

    def room(*words: str) -> int:
        chosen = evaluation_config(None, [f"model.path={model}", f"problems.path={file}", *words])
        problems = load_sources({"problems": chosen.problems}).candidates
        return with_room(chosen, problems).generator.max_prompt_tokens

    longest = room("generator.max_tokens=8")
    assert 10 < longest < 120
    assert room("generator.max_tokens=8", "generator.max_prompt_tokens=200") == 200
    with pytest.raises(UsageError, match=rf"has {longest} tokens, and generator\.max_prompt_tokens=9: leave"):
        room("generator.max_prompt_tokens=9")
    with pytest.raises(UsageError, match=r"reads 1024 in all: give generator\.max_tokens=\d+ or less"):
        room("generator.max_tokens=1024")
    with pytest.raises(
        UsageError, match=r"=1020 and generator\.max_tokens=8 are more than the 1024 tokens .* leave gen"
    ):
        room("generator.max_tokens=8", "generator.max_prompt_tokens=1020")
