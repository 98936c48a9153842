"""The tiny policy is an ordinary, small, untied causal language model, and its supervised data is what it claims."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from raypoly.config import WarmStartConfig
from raypoly.policy.supervised import SupervisedTrainer
from raypoly.policy.supervised_examples import (
    FREQUENCIES,
    IGNORED,
    RESPONSE_TOKENS,
    WIDTH,
    encode,
    make_example,
    tokenizer_texts,
)
from raypoly.policy.tiny_model import CONTEXT, build_model, build_tokenizer, save_folder
from raypoly.problems.puzzles.puzzle_language import all_puzzles

PUZZLES = all_puzzles()


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(tokenizer_texts(PUZZLES))


def test_the_tokenizer_is_the_same_each_time_and_loses_no_text() -> None:
    again = build_tokenizer(tokenizer_texts(PUZZLES))
    assert again.backend_tokenizer.to_str() == tokenizer().backend_tokenizer.to_str()
    for text in ("def f(n):\n return n\n", "  tabs\tand\nünïcode 你好", "x" * 50):
        assert tokenizer().decode(tokenizer()(text).input_ids) == text


def test_every_solution_fits_and_prompts_tokenize_alike_with_and_without_it() -> None:
    config = WarmStartConfig(wrong_fraction=0.0)
    for index in range(2000):
        example = make_example(PUZZLES, config, index)
        head, tail = tokenizer()(example.prompt).input_ids, tokenizer()(example.response).input_ids
        assert len(tail) < RESPONSE_TOKENS
        assert len(head) + RESPONSE_TOKENS + 1 <= WIDTH <= CONTEXT
        assert tokenizer()(example.prompt + example.response).input_ids == head + tail


def test_the_model_is_below_a_million_parameters_and_untied() -> None:
    model = build_model(len(tokenizer()), seed=0)
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    assert model.lm_head.weight.data_ptr() != model.model.embed_tokens.weight.data_ptr()


def test_the_folder_opens_with_the_same_weights_and_an_end_of_sequence(tmp_path: Path) -> None:
    model = build_model(len(tokenizer()), seed=0)
    save_folder(model, tokenizer(), tmp_path)
    opened, words = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert opened.dtype == torch.float32
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), opened.parameters(), strict=True))
    assert opened.generation_config.eos_token_id == words.eos_token_id == 0
    assert words.pad_token_id == 1
    assert opened.config.max_position_embeddings >= 256


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first, same, other = build_model(480, 0), build_model(480, 0), build_model(480, 1)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first.lm_head.weight, same.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_examples_repeat_by_index_and_a_share_does_not_parse() -> None:
    config = WarmStartConfig(seed=3)
    examples = [make_example(PUZZLES, config, index) for index in range(1000)]
    assert examples == [make_example(PUZZLES, config, index) for index in range(1000)]
    outcomes = Counter(parses(example.prompt + example.response) for example in examples)
    assert 0.05 < outcomes[False] / 1000 < 0.3
    assert sum(FREQUENCIES.values()) == pytest.approx(1.0)


def parses(program: str) -> bool:
    try:
        ast.parse(program)
    except SyntaxError:
        return False
    return True


def test_the_loss_covers_the_response_and_its_end_alone() -> None:
    example = make_example(PUZZLES, WarmStartConfig(wrong_fraction=0.0), 0)
    ids_BL, labels_BL = encode(tokenizer().backend_tokenizer, [example])
    learned = ids_BL[labels_BL != IGNORED]
    assert tokenizer().decode(learned[:-1]) == example.response
    assert learned[-1] == tokenizer().eos_token_id
    assert ids_BL.dtype == labels_BL.dtype == np.int32


def test_a_few_steps_lower_the_loss() -> None:
    config = WarmStartConfig(steps=12, batch_size=16)
    trainer = SupervisedTrainer(build_model(len(tokenizer()), 0), config)
    losses = []
    for step in range(config.steps):
        examples = [make_example(PUZZLES, config, step * 16 + i) for i in range(16)]
        losses.append(trainer.step(*encode(tokenizer().backend_tokenizer, examples)))
    assert losses[-1] < 0.8 * losses[0]
