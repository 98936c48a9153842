"""The load of one measured update: shapes of models, random rows, and the operations that they need.

Imports numpy, transformers and `TrainingRow` alone, so that `benchmarks.gpu_learner` runs where little is installed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers import Qwen3Config

from raypoly.policy.training_rows import TrainingRow

QWEN3_4B = Qwen3Config(
    vocab_size=151_936,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40_960,
    tie_word_embeddings=True,
)
TINY = Qwen3Config(
    vocab_size=4096,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
    tie_word_embeddings=True,
)


def sample_rows(count: int, shortest: int, longest: int, vocabulary: int) -> list[TrainingRow]:
    """Random sequences of uniformly drawn lengths. The first eighth of each, at most 512 tokens, is the prompt."""
    rng = np.random.default_rng(0)
    rows = []
    for length in rng.integers(shortest, longest + 1, count):
        tokens = rng.integers(0, vocabulary, length).astype(np.int32)
        cut = min(512, int(length) // 8)
        sampler = np.full(length - cut, -np.log(vocabulary), np.float32)
        rows.append(TrainingRow(tokens[:cut], tokens[cut:], sampler, float(rng.choice([-1.0, 1.0])), 0))
    return rows


def model_flops(config: Qwen3Config, rows: Sequence[TrainingRow]) -> float:
    """The least floating-point operations of one update on these rows."""
    heads, width = config.num_attention_heads * config.head_dim, config.hidden_size
    key_value = config.num_key_value_heads * config.head_dim
    layer = width * (2 * heads + 2 * key_value + 3 * config.intermediate_size)
    body = 6.0 * config.num_hidden_layers * layer * sum(row.length for row in rows)
    head = 6.0 * width * config.vocab_size * sum(len(row.tokens) for row in rows)
    attention = 6.0 * config.num_hidden_layers * heads * sum(row.length**2 for row in rows)
    return body + head + attention
