"""Distillation by real actors: from a folder, and from a server that limits, breaks off and goes away."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from raypoly import Run
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.learner.tiny_model import build_model, build_tokenizer, save_folder
from raypoly.rollouts.teacher_model import TeacherSpec
from raypoly.rollouts.teacher_server import TeacherServer
from tests.support.faulty_front import Front, running
from tests.support.faulty_handler import Answer
from tests.support.local_driver import ROOT, LocalDriver, wait_for
from tests.support.ray_machines import Machines
from tests.workflows.test_train import config, train

ALONE = ("objective.name=distillation", "train.steps=2", "generator.temperature=1")
SPEC = TeacherSpec(bf16=False, temperature=1.0, token_budget=4096, logits_mib=64)


class Few:
    """A tokenizer's first tokens."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self.decode, self._size = tokenizer.decode, size

    def __len__(self) -> int:
        return self._size


class ServedTeacher(Front):
    """Log-probabilities of a prompt's token ids as vLLM's server gives them."""

    leaves_after = -1
    """Requests after which it is away, until `noticed` is there."""
    noticed = Path()

    def of(self, folder: Path) -> ServedTeacher:
        self.model, self.tokenizer = SPEC(folder, lambda: None), AutoTokenizer.from_pretrained(folder)
        self.turn = threading.Lock()
        return self

    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        if "prompt_logprobs" not in body:  # a probe
            return Answer(200, {"choices": [{"text": "x", "finish_reason": "length"}]})
        assert body["prompt_logprobs"] == 0
        ids = np.array(body["prompt"], np.int32)
        with self.turn:
            if 0 <= self.leaves_after <= len(self.served):  # several may be served at once
                self.leaves_after = -1
                threading.Thread(target=self._leave).start()
            (found,) = self.model.ask([(ids[:1], ids[1:])])
        entries = [
            {str(token): {"logprob": float(logprob), "decoded_token": self.tokenizer.decode([token])}}
            for token, logprob in zip(ids[1:].tolist(), found, strict=True)
        ]
        return Answer(200, {"choices": [{"text": "", "finish_reason": "length", "prompt_logprobs": [None, *entries]}]})

    def _leave(self) -> None:
        self.close()
        wait_for(self.noticed.exists)
        self.open()


@pytest.fixture(scope="module")
def teacher(warm_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warm model with other weights."""
    folder = tmp_path_factory.mktemp("teacher") / "model"
    tokenizer = AutoTokenizer.from_pretrained(warm_model)
    save_folder(build_model(len(tokenizer), seed=7), tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def by_folder(machines: Machines, warm_model: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose teacher is in a folder."""
    folder = tmp_path_factory.mktemp("by_folder") / "run"
    with pytest.MonkeyPatch.context() as joined:
        joined.setenv("RAY_ADDRESS", machines.address)
        train(config(warm_model, folder, *ALONE, f"distill.teacher={teacher}"))
    return Run(folder)


@pytest.mark.usefixtures("joined")
def test_a_teacher_that_is_the_student_gives_no_gradient_and_another_one_does(
    by_folder: Run, warm_model: Path, tmp_path: Path
) -> None:
    train(config(warm_model, tmp_path / "same", *ALONE, "train.steps=1", f"distill.teacher={warm_model}"))
    same, other = Run(tmp_path / "same").rows, by_folder.rows
    assert all(row["reward"] is None for row in (*same, *other))
    assert abs(same[0]["teacher_logprobs/kl"]) < 1e-4
    assert other[0]["teacher_logprobs/kl"] > 1
    assert same[0]["grad_norm"] < 1e-3 * other[0]["grad_norm"]


@pytest.mark.usefixtures("joined")
def test_a_server_that_limits_breaks_off_and_goes_away_gives_the_weights_of_the_folder(
    by_folder: Run, warm_model: Path, teacher: Path, tmp_path: Path
) -> None:
    with running(ServedTeacher().of(teacher)) as server:
        asked = (f"distill.server={server.url}", "distill.teacher=tiny")
        want = train(config(warm_model, tmp_path / "undisturbed", *ALONE, *asked))
    front = ServedTeacher(faults=["ok", "429-retry-after", "cut", "500", "ok", "reset"]).of(teacher)
    with running(front) as server:
        asked = (f"distill.server={server.url}", "distill.teacher=tiny", "distill.timeout=20")
        front.leaves_after, front.noticed = 12, tmp_path / "paused"
        got = train(config(warm_model, tmp_path / "server", *ALONE, *asked, f"run.on_pause=touch {front.noticed}"))
    assert got == want
    first_steps = [run.rollouts(0)["token_advantages"].to_pylist() for run in (by_folder, Run(tmp_path / "server"))]
    for one, other in zip(*first_steps, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    assert {"429-retry-after", "cut", "500"} <= set(front.struck)
    assert sum(row["paused_seconds"] for row in Run(tmp_path / "server").rows) > 0
    assert len(front.served) <= 1 + 2 * 24 + front.struck.total() - front.struck["ok"], "nothing is asked twice"


@pytest.mark.usefixtures("joined")
def test_another_tokenizer_is_refused_in_one_sentence(warm_model: Path, teacher: Path, tmp_path: Path) -> None:
    tokenizer = build_tokenizer(["entirely different words 0123456789", "which make other pieces"])
    save_folder(build_model(len(tokenizer), seed=0), tokenizer, tmp_path / "other")
    run = config(warm_model, tmp_path / "run", *ALONE, f"distill.teacher={tmp_path / 'other'}")
    with pytest.raises(UsageError, match=r"has another tokenizer than the student: the student's token \d+ is '.*'"):
        train(run)
    with pytest.raises(UsageError, match="has another tokenizer than the student"):
        train(run)  # again, though its folder is there now
    with running(ServedTeacher().of(tmp_path / "other")) as server:
        given = load(None, [f"distill.server={server.url}", "distill.teacher=other"]).distill
        with pytest.raises(UsageError, match=r"has another tokenizer than the student: token \d+ is"):
            TeacherServer(given).check(Few(AutoTokenizer.from_pretrained(warm_model), len(tokenizer)))


def test_a_server_without_log_probabilities_of_prompts_is_refused(warm_model: Path) -> None:
    class Plain(Front):
        def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
            return Answer(200, {"choices": [{"text": "x", "finish_reason": "length"}]})

    with running(Plain()) as server:
        given = load(None, [f"distill.server={server.url}", "distill.teacher=plain"]).distill
        with pytest.raises(UsageError, match="gives no log-probabilities of a prompt's tokens"):
            TeacherServer(given).check(AutoTokenizer.from_pretrained(warm_model))


@pytest.mark.parametrize("logprob", [float("nan"), float("-inf"), 0.7, True, None])
def test_a_server_that_gives_no_log_probability_is_refused(logprob: Any) -> None:
    class Lying(Front):
        def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
            said = [None, *({str(token): {"logprob": logprob}} for token in body["prompt"][1:])]
            return Answer(200, {"choices": [{"text": "", "finish_reason": "length", "prompt_logprobs": said}]})

    with running(Lying()) as server:
        given = load(None, [f"distill.server={server.url}", "distill.teacher=lying"]).distill
        with pytest.raises(UsageError, match="gave no log-probability of token 3"):
            TeacherServer(given).ask(np.array([1, 2], np.int32), np.array([3, 4], np.int32))


def test_a_teacher_in_bfloat16_is_near_the_one_in_float32_and_an_engine_gives_the_same(teacher: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(1, 400, 5, np.int32), rng.integers(1, 400, n, np.int32)) for n in (7, 1, 12)]
    exact = SPEC(teacher, lambda: None).ask(pairs)
    rounded = TeacherSpec(True, 1.0, 4096, 64)(teacher, lambda: None).ask(pairs)
    engine = load(None, ["generator.engine=transformers"]).generator
    by_engine = TeacherSpec(False, 1.0, 4096, 64, engine)(teacher, lambda: None).ask(pairs)
    assert [len(each) for each in exact] == [7, 1, 12]
    for one, other, third in zip(exact, rounded, by_engine, strict=True):
        assert 0 < np.abs(one - other).max() < 0.2
        np.testing.assert_allclose(one, third, atol=1e-4)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["objective.name=distillation"], "objective.name=distillation needs a teacher: set distill.teacher."),
        (["distill.teacher=/nowhere/model"], "distill.teacher=/nowhere/model does not exist."),
        (["distill.server=http://127.0.0.1:1/v1"], "distill.server needs the model's name there: set distill.teacher."),
        (
            ["distill.server=http://127.0.0.1:1/v1", "distill.teacher=x", "distill.api_key_env=NOT_SET_ANYWHERE"],
            "distill.api_key_env='NOT_SET_ANYWHERE' is not set",
        ),
        (
            ["loss.kl_in_reward=0.1", "generator.placement=colocated", "train.refill=2"],
            "The stage reference_logprobs asks",
        ),
        (
            ["distill.server=http://127.0.0.1:1/v1", "distill.teacher=x", "generator.temperature=0.6"],
            "generator.temperature=0.6, but a teacher's server or engine gives",
        ),
        (["distill.server=http://u:p@127.0.0.1/v1", "distill.teacher=x"], "has a name or a password"),
        (["loss.kl_in_reward=0.1", "loss.kl_coefficient=0.1"], "the loss has a kl of its own, kl_coefficient"),
        (["loss.kl_in_reward=-1"], "loss.kl_in_reward"),
        (["distill.clip=0"], "distill.clip"),
        (["loss.kl_in_reward=0.1", "objective.name=flowrl", "loss.name=flowrl"], "fits one a response"),
        (
            [
                "objective.name=cppo",
                "scaffold.name=tuple",
                "loss.name=clipped_surrogate",
                "loss.kl_coefficient=0",
                "loss.kl_in_reward=0.1",
            ],
            "has no credit for drafts",
        ),
        (
            ["loss.kl_in_reward=0.1", "objective.name=supervised", "scaffold.name=given", "scaffold.rows=x"],
            "samples nothing",
        ),
    ],
)
def test_each_mistake_is_a_sentence_before_anything_starts(overrides: list[str], said: str, tmp_path: Path) -> None:
    from raypoly.planning.preflight import check_config

    with pytest.raises(UsageError) as refused:
        check_config(load(None, overrides), tmp_path / "run")
    assert said in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_teacher_that_reads_less_than_a_row_is_refused(teacher: Path, tmp_path: Path) -> None:
    from raypoly.planning.preflight import check_config

    short = shutil.copytree(teacher, tmp_path / "short")
    values = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps({**values, "max_position_embeddings": 64}))
    with pytest.raises(UsageError, match="The teacher reads 64 tokens, and a row may have"):
        check_config(load(None, [f"distill.teacher={short}"]), tmp_path / "run")


def test_the_pages_objective_by_token_trains(machines: Machines, small_run: list[str], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "credit.md").read_text()
    source = re.search(r"`fading\.py`\):\n\n```python\n(.*?)```", page, re.S)
    assert source is not None
    assert len(source[1].splitlines()) <= 15
    (tmp_path / "fading.py").write_text(source[1])
    around = {"RAY_ADDRESS": machines.address, "PYTHONPATH": str(tmp_path)}
    driver = LocalDriver(tmp_path / "run", [*small_run, "objective.name=fading:Fading", "train.steps=2"], around)
    assert driver.finish() == 0, driver.log()
    rows = Run(driver.folder).rollouts(1)
    for tokens, mean in zip(rows["token_advantages"].to_pylist(), rows["advantage"].to_pylist(), strict=True):
        assert tokens[-1] == pytest.approx(mean * len(tokens) / sum(0.95**t for t in range(len(tokens))), abs=1e-5)
