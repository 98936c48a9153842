"""The tiny policy is an ordinary, small, untied causal language model, and its supervised data is what it claims."""

from __future__ import annotations

import ast
import hashlib
import random
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from raypoly.analysis.evaluation.planned_strategy import planned_strategy
from raypoly.core.config import WarmStartConfig
from raypoly.data.puzzles.puzzle_language import all_puzzles
from raypoly.data.puzzles.puzzle_solutions import render_solution
from raypoly.learner.supervised_examples import (
    FREQUENCIES,
    IGNORED,
    RESPONSE_TOKENS,
    WIDTH,
    encode,
    make_example,
    tokenizer_texts,
)
from raypoly.learner.tiny_model import CONTEXT, SupervisedTrainer, build_model, build_tokenizer, save_folder

PUZZLES = all_puzzles()
BY_PROMPT = {puzzle.prompt: puzzle for puzzle in PUZZLES}


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


def test_without_planned_solutions_the_warm_start_is_what_it_was() -> None:
    """Examples, tokenizer and batches of the warm start before it knew of plans."""
    examples = [make_example(PUZZLES, WarmStartConfig(seed=3), index) for index in range(2000)]
    assert digest(examples) == "5090915ceefe3f5db458e85c0c8194d0949e455caedd2f43863fb380b3f536b4"
    assert digest(tokenizer_texts(PUZZLES)) == "ed5c326f4c8acd51b64cbc4d53652e56d3723f6425fb0eb98bd48b4b97e782e5"
    assert encode(tokenizer().backend_tokenizer, examples)[0][:, 96:].max() == tokenizer().pad_token_id


def test_a_wider_row_gives_the_same_update() -> None:
    examples = [make_example(PUZZLES, WarmStartConfig(), index) for index in range(8)]
    models = [build_model(len(tokenizer()), 0) for _ in range(2)]
    for model, width in zip(models, (96, WIDTH), strict=True):
        SupervisedTrainer(model, WarmStartConfig()).step(*encode(tokenizer().backend_tokenizer, examples, width))
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))


def test_a_share_of_solutions_is_shown_behind_a_method_of_their_strategy() -> None:
    config = WarmStartConfig(planned=0.6, wrong_fraction=0.0)
    words = build_tokenizer(tokenizer_texts(PUZZLES, planned=True))
    followed = planned = 0
    for index in range(1000):
        example, plain = (
            make_example(PUZZLES, config, index),
            make_example(PUZZLES, WarmStartConfig(wrong_fraction=0.0), index),
        )
        assert example.response == plain.response, "only the prompt changes"
        before, _, own = example.prompt.rpartition("# ")
        assert f"# {own}" == plain.prompt
        assert len(words(example.prompt + example.response).input_ids) < WIDTH
        if before:
            planned += 1
            strategy = planned_strategy(before)
            assert before.startswith("# Use this method: ")
            puzzle = BY_PROMPT[plain.prompt]
            followed += example.response in {
                render_solution(puzzle, strategy or "", random.Random(s)) for s in range(60)
            }
    assert 0.55 < planned / 1000 < 0.65
    assert followed == planned


def digest(said: object) -> str:
    return hashlib.sha256(repr(said).encode()).hexdigest()


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
