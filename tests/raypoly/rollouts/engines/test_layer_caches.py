"""The transformers engine samples from models with windows, capped scores and linear attention as the learner does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import FalconH1Config, PreTrainedConfig

from raypoly.algorithms.losses import build as build_loss
from raypoly.core.config import GeneratorConfig, TrainConfig
from raypoly.core.errors import UsageError
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.tiny_model import build_tokenizer
from raypoly.rollouts.engines import SampleRequest, build
from tests.raypoly.learner.test_model_families import PACKED, PADDED
from tests.raypoly.learner.test_packing import SIZES, VOCABULARY, folder
from tests.support.random_model import TEXTS

RNG = np.random.default_rng(0)
REQUESTS = [
    SampleRequest(
        slot, RNG.integers(2, VOCABULARY, 9 + 5 * slot).astype(np.int32), tuple(range(10 * slot, 10 * slot + 4))
    )
    for slot in range(4)
]


def with_tokenizer(config: PreTrainedConfig, path: Path) -> Path:
    build_tokenizer(TEXTS).save_pretrained(folder(config, path))
    return path


@pytest.mark.parametrize("name", ["qwen3.5", "gemma2", "gemma4 with shared keys", "mistral"])
def test_sampled_log_probabilities_are_the_learners(name: str, tmp_path: Path) -> None:
    """Groups of prompts of unequal length share a batch, and rows leave it when they end."""
    path = with_tokenizer((PACKED | PADDED)[name], tmp_path)
    engine = build(path, GeneratorConfig(engine="transformers", max_tokens=24), "float32")
    learner = PolicyLearner(path, TrainConfig(), build_loss("policy_gradient"), temperature=1.0)
    lengths = set()
    for slot, samples in engine.sample(REQUESTS):
        for sample in samples:
            lengths.add(len(sample.tokens))
            want_T = learner.logprobs(REQUESTS[slot].prompt_tokens, sample.tokens, 1.0)
            np.testing.assert_allclose(sample.logprobs, want_T, rtol=0, atol=1e-4)
    assert len(lengths) > 1


def test_layers_without_a_cache_here_are_named(tmp_path: Path) -> None:
    config = FalconH1Config(**SIZES, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8)
    with_tokenizer(config, tmp_path)
    with pytest.raises(UsageError, match=r"FalconH1ForCausalLM.*LinearAttentionAndFull.*generator\.engine=vllm"):
        build(tmp_path, GeneratorConfig(engine="transformers"), "float32")
