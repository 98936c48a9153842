"""The load of one measured update: shapes of models, random rows, and the operations that they need.

Imports numpy, transformers and what a `TrainingRow` is made of, so that `benchmarks.gpu_learner` runs where little is
installed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers import Qwen3Config

from raypoly.core.values import Int32
from raypoly.learner.training_rows import TrainingRow

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


def sample_rows(
    groups: int, each: int, prompt_tokens: tuple[int, int], response_tokens: tuple[int, int], vocabulary: int
) -> list[TrainingRow]:
    """Groups of `each` random responses that share their prompt and are neighbours, as in a step of RL.

    Lengths are drawn uniformly between the two given, both included. The same arguments give the same rows.
    """
    rng = np.random.default_rng(0)

    def tokens(between: tuple[int, int]) -> Int32:
        return rng.integers(0, vocabulary, rng.integers(between[0], between[1] + 1)).astype(np.int32)

    rows = []
    for prompt in [tokens(prompt_tokens) for _ in range(groups)]:
        for response in [tokens(response_tokens) for _ in range(each)]:
            sampler = np.full(len(response), -np.log(vocabulary), np.float32)
            rows.append(TrainingRow(prompt, response, sampler, float(rng.choice([-1.0, 1.0])), 0))
    return rows


def model_flops(config: Qwen3Config, rows: Sequence[TrainingRow]) -> float:
    """The least floating-point operations of one update on these rows.

    6 (2 forward, 4 backward) a token and weight of the layers; as many a response token and weight of the head; and 12
    a number of a layer's queries for each pair of a token and one that it sees. Neighbours with equal prompts share
    one, which counts once: its tokens, and the pairs within it. A micro-batch that starts within a group computes the
    prompt again, and that does not count.
    """
    heads, width = config.num_attention_heads * config.head_dim, config.hidden_size
    key_value = config.num_key_value_heads * config.head_dim
    layer = width * (2 * heads + 2 * key_value + 3 * config.intermediate_size)
    responses = sum(len(row.tokens) for row in rows)
    pairs = sum(len(row.tokens) * (len(row.tokens) / 2 + len(row.prompt_tokens)) for row in rows)
    prompts = [
        len(row.prompt_tokens)
        for i, row in enumerate(rows)
        if i == 0 or not np.array_equal(rows[i - 1].prompt_tokens, row.prompt_tokens)
    ]
    tokens, pairs = responses + sum(prompts), pairs + sum(length**2 / 2 for length in prompts)
    head = width * config.vocab_size * responses
    return 6.0 * (config.num_hidden_layers * (layer * tokens + 2 * heads * pairs) + head)
