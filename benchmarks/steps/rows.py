"""Rows for an update: what the starting model samples for the first step's prompts."""

from __future__ import annotations

import numpy as np
from transformers import AutoTokenizer

from benchmarks.steps.setting import Setting
from raypoly.core.config import GeneratorConfig
from raypoly.core.seeds import derive
from raypoly.data import build_problem_set
from raypoly.data.problem_order import EpochOrder
from raypoly.learner.training_rows import TrainingRow
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.engines.transformers_engine import TransformersEngine


def sampled(setting: Setting) -> list[TrainingRow]:
    """Advantages are drawn, none is zero: nothing may be left out on either side."""
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
