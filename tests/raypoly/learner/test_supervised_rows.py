"""Given responses under `objective.name=supervised` are learned as the warm start learns its examples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from actors.model_files import ModelTokenizer
from raypoly.algorithms import losses, objectives
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import Config, WarmStartConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Int32
from raypoly.data import build_problem_set
from raypoly.data.puzzles import puzzle_of
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.supervised_examples import Example, encode, make_example, tokenizer_texts
from raypoly.learner.tiny_model import SupervisedTrainer, build_model, build_tokenizer, save_folder
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from raypoly.rollouts import scaffolds

STEPS, BATCH = 6, 12
WARM_START = WarmStartConfig(steps=STEPS, batch_size=BATCH)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained tiny model, and `rows.jsonl`, the warm start's first examples."""
    folder = tmp_path_factory.mktemp("supervised")
    puzzles = [puzzle_of(problem) for problem in build_problem_set(Config().problems).splits["train"]]
    tokenizer = build_tokenizer(tokenizer_texts(puzzles))
    save_folder(build_model(len(tokenizer), WARM_START.seed), tokenizer, folder)
    examples = [make_example(puzzles, WARM_START, index) for index in range(STEPS * BATCH)]
    rows = [json.dumps({"prompt": it.prompt, "response": it.response}) for it in examples]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    return folder


def config_of(folder: Path, *more: str) -> Config:
    train = {"steps": STEPS, "prompts_per_step": BATCH, "rollouts": 1, "lr": WARM_START.lr, "schedule": "cosine"}
    keys = [f"train.{key}={value}" for key, value in train.items()]
    return load(None, ["objective.name=supervised", f"scaffold.rows={folder / 'rows.jsonl'}", *keys, *more], str)


def given_rows(folder: Path, config: Config) -> list[TrainingRow]:
    """The rows of every problem of the scaffold, in the order of the file, as the loop makes them."""
    scaffold, tokenizer = scaffolds.of_run(config), ModelTokenizer(folder)
    objective, rows = objectives.of_run(config), []
    for problem in scaffold.own_problems() or ():
        (ask,) = scaffold.ask(problem, (), 1)
        (prompt,), (response,) = tokenizer.encode([ask.prompt]), tokenizer.encode_responses([ask.text or ""])
        (advantage,) = objective.advantages(rewards=[0.0])
        rows.append(TrainingRow(prompt, response, np.full(len(response), np.nan, np.float32), advantage, 0))
    return rows


def learned(folder: Path, config: Config, rows: list[TrainingRow]) -> list[UpdateStats]:
    learner = PolicyLearner(folder, config.train, losses.of_run(config), 1.0)
    found = []
    for step in range(STEPS):
        learner.begin(step, Normalisers(BATCH, 1, config.generator.max_tokens))
        learner.accumulate(rows[step * BATCH : (step + 1) * BATCH])
        found.append(learner.apply())
    return found


def test_given_rows_have_the_warm_starts_loss_curve(folder: Path) -> None:
    config = config_of(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    examples = [Example(**row) for row in map(json.loads, (folder / "rows.jsonl").read_text().splitlines())]
    trainer = SupervisedTrainer(build_model(len(tokenizer), WARM_START.seed), WARM_START)
    batches = [encode(tokenizer.backend_tokenizer, examples[at : at + BATCH]) for at in range(0, len(examples), BATCH)]
    wanted = [trainer.step(*batch) for batch in batches]
    found = learned(folder, config, given_rows(folder, config))
    assert wanted[-1] < wanted[0] - 1
    np.testing.assert_allclose([stats.loss for stats in found], wanted, rtol=2e-5)


def test_given_rows_are_the_warm_starts_tokens(folder: Path) -> None:
    rows = given_rows(folder, config_of(folder))
    examples = [Example(**row) for row in map(json.loads, (folder / "rows.jsonl").read_text().splitlines())]
    ids, labels = encode(AutoTokenizer.from_pretrained(folder).backend_tokenizer, examples)
    for row, own, label in zip(rows, ids, labels, strict=True):
        tokens: Int32 = np.concatenate([row.prompt_tokens, row.tokens])
        np.testing.assert_array_equal(tokens, own[: row.length])
        np.testing.assert_array_equal(row.tokens, label[label >= 0])


def test_nothing_of_a_sampler_is_measured_of_given_rows_and_a_limit_of_mismatch_stops_none(folder: Path) -> None:
    config = config_of(folder, "train.max_mismatch=1e-9", "train.steps=1")
    learner = PolicyLearner(folder, config.train, losses.of_run(config), 1.0)
    learner.begin(0, Normalisers(BATCH, 1, 56))
    learner.accumulate(given_rows(folder, config)[:BATCH])
    stats = learner.apply()
    assert np.isfinite([stats.loss, stats.grad_norm, stats.entropy]).all()
    assert np.isnan(list(vars(stats.measured).values())).all()
    assert stats.tokens > 0


def test_what_was_sampled_is_measured_as_if_nothing_were_given_beside_it(folder: Path) -> None:
    config = config_of(folder)
    given = given_rows(folder, config)[:BATCH]
    sampled = [TrainingRow(r.prompt_tokens, r.tokens, np.full(len(r.tokens), -5, np.float32), 1.0, 0) for r in given]

    def measured(rows: list[TrainingRow]) -> UpdateStats:
        learner = PolicyLearner(folder, config.train, losses.of_run(config), 1.0)
        learner.begin(0, Normalisers(BATCH, 1, 56))
        learner.accumulate(rows)
        return learner.apply()

    alone, mixed = measured(sampled[:4]).measured, measured([*sampled[:4], *given[4:]]).measured
    np.testing.assert_allclose(list(vars(mixed).values()), list(vars(alone).values()), rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "parameters"),
    [("gspo", {}), ("policy_gradient", {"importance_cap": 2.0}), ("policy_gradient", {"mask_low": 0.5})],
)
def test_a_loss_that_reads_the_sampler_refuses_given_rows_in_one_sentence(
    folder: Path, loss: str, parameters: dict[str, float]
) -> None:
    config = config_of(folder)
    learner = PolicyLearner(folder, config.train, losses.build(loss, **parameters), 1.0)
    learner.begin(0, Normalisers(BATCH, 1, 56))
    with pytest.raises(UsageError, match=r"given, not sampled, and the loss .* weighs tokens by the ratio"):
        learner.accumulate(given_rows(folder, config)[:1])


def test_bf16_brings_no_ratio_to_given_rows(folder: Path) -> None:
    loss = losses.of_run(config_of(folder, "model.dtype=bfloat16"))
    assert loss.config.importance_cap is None
    assert not loss.needs_sampler
    assert losses.of_run(config_of(folder, "loss.aggregation=seq_mean_token_mean")).config.aggregation != "token_mean"
