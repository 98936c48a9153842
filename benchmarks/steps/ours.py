"""raypoly's side: its own step, driver, Ray and actors included, and its learner's update alone."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from benchmarks.steps.setting import Setting
from raypoly.algorithms.losses import build
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core import settings
from raypoly.core.config import Config, GeneratorConfig, ModelConfig, TrainConfig
from raypoly.core.seeds import derive
from raypoly.data import build_problem_set
from raypoly.data.problem_order import EpochOrder
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.engines.transformers_engine import TransformersEngine
from raypoly.run.run_identity import resolve_run
from tests.support.paced_process import Pace
from tests.support.step_tables import MeasuredStep
from workflows.startup.open_run import open_run
from workflows.train import Training

STEPS = 1000
"""More than are measured: nothing is done as in a last step."""


def config_of(setting: Setting, engine: str, folder: str) -> Config:
    """The embedded default with GRPO, without judge, evidence, budgets, evaluations, checkpoints: the other side has
    none."""
    overrides = {
        "run.dir": folder,
        "model.path": setting.model,
        "model.dtype": setting.dtype,
        **{f"problems.{key}": value for key, value in setting.problems.model_dump(exclude_unset=True).items()},
        "generator.engine": engine,
        "generator.max_tokens": setting.max_tokens,
        "generator.max_prompt_tokens": setting.max_prompt_tokens,
        "generator.threads": setting.threads,
        "generator.temperature": setting.temperature,
        "generator.memory_gib": setting.cache_gib,
        "objective.name": "tests.support.every_row_objective:EveryRow",
        "scorer.workers": setting.workers,
        "scorer.evidence": "false",
        "evaluate.judge": "false",
        "train.prompts_per_step": setting.prompts,
        "train.rollouts": setting.rollouts,
        "train.lr": setting.lr,
        "train.threads": setting.threads,
        "train.token_budget": setting.token_budget,
        "train.steps": STEPS,
        "train.checkpoint_every": STEPS,
        "evaluate.every": 0,
        "ray.dashboard": "false",
    }
    return settings.load(None, [f"{key}={value}" for key, value in overrides.items()], note=lambda text: None)


class _Counted(Training):
    """Keeps what the learner says of each update."""

    stats: UpdateStats

    async def learn(self, *given: Any) -> UpdateStats:
        self.stats = await super().learn(*given)
        return self.stats


def step_by_step(setting: Setting, engine: str, pace: Pace) -> None:
    """Whole steps of `workflows.train`, committed to a journal in a temporary folder as always."""

    async def run(folder: str) -> None:
        async with open_run(resolve_run(config_of(setting, engine, folder))) as opened:
            training = _Counted(opened)
            opened.observers.progress.start(STEPS, 0)
            await opened.weights.sync()
            pace.ready()
            step = 0
            while await asyncio.to_thread(pace.next):
                begin = time.perf_counter()
                await training.step(step)
                seconds = time.perf_counter() - begin
                applied = opened.durability.journal.applied(step)
                assert applied is not None
                stats, row = training.stats, applied.metrics
                stages = {stage: spent for stage, spent in row["seconds"].items() if stage != "total"}
                pace.done(MeasuredStep(seconds, setting.sequences, stats.rows, stats.tokens, row["reward"], stages))
                step += 1

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(folder))


def updates(setting: Setting, rows: Sequence[TrainingRow], pace: Pace) -> None:
    """The learner's updates on these rows, a group at a time as they come in a step; no Ray."""
    from raypoly.learner.policy_learner import PolicyLearner

    config = TrainConfig(lr=setting.lr, threads=setting.threads, token_budget=setting.token_budget)
    model = ModelConfig.model_validate({"dtype": setting.dtype})
    learner = PolicyLearner(setting.model, config, build("policy_gradient"), setting.temperature, model)
    normalisers = Normalisers(setting.prompts, setting.rollouts, setting.max_tokens)
    pace.ready()
    while pace.next():
        begin = time.perf_counter()
        learner.begin(learner.version, normalisers)
        for start in range(0, len(rows), setting.rollouts):
            learner.accumulate(rows[start : start + setting.rollouts])
        stats = learner.apply()
        seconds = time.perf_counter() - begin
        first = stats.grad_norm if stats.version == 1 else None
        pace.done(MeasuredStep(seconds, len(rows), stats.rows, stats.tokens, grad_norm=first))


def sampled(setting: Setting) -> list[TrainingRow]:
    """Rows for an update: what the starting model samples for the first step's prompts.

    Advantages are drawn, none is zero: nothing may be left out on either side.
    """
    problems = EpochOrder(build_problem_set(setting.problems).splits["train"], setting.prompts, seed=0).batch(0)
    tokenizer = AutoTokenizer.from_pretrained(setting.model)
    config = GeneratorConfig(
        engine="transformers",
        temperature=setting.temperature,
        max_tokens=setting.max_tokens,
        threads=setting.threads,
    )
    requests = [
        SampleRequest(
            slot,
            np.array(tokenizer(problem.prompt, add_special_tokens=False)["input_ids"], np.int32),
            tuple(derive(0, "benchmark", slot, rollout) for rollout in range(setting.rollouts)),
        )
        for slot, problem in enumerate(problems)
    ]
    rng = np.random.default_rng(0)
    advantages = rng.choice([-0.25, 0.75], setting.sequences)
    groups = TransformersEngine(setting.model, config, setting.dtype).sample(requests)
    return [
        TrainingRow(requests[slot].prompt_tokens, sample.tokens, sample.logprobs, float(advantages[place]), 0)
        for slot, samples in groups
        for place, sample in enumerate(samples, slot * setting.rollouts)
    ]
