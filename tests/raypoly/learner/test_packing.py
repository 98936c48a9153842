"""Packed rows see their own prompts alone; and how rows are cut into batches."""

from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    PhiConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from raypoly.core.errors import UsageError
from raypoly.core.values import Int32
from raypoly.learner.packing import MicroBatch, Packer, RankPartitioner, even, pack
from raypoly.learner.policy_model import load_model, response_logprobs
from raypoly.learner.training_rows import TrainingRow

VOCABULARY = 131
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}


def folder(config: PreTrainedConfig, path: Path) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return path


def some_rows(seed: int, *responses: int) -> list[TrainingRow]:
    """Rows of as many prompts as numbers are given, each with so many responses."""
    rng = np.random.default_rng(seed)

    def tokens(longest: int) -> Int32:
        return rng.integers(2, VOCABULARY, rng.integers(1, longest)).astype(np.int32)

    prompts = [prompt for count in responses for prompt in [tokens(20)] * count]
    answers = [tokens(30) for _ in prompts]
    return [
        TrainingRow(*pair, np.zeros(len(pair[1]), np.float32), 1.0, 0) for pair in zip(prompts, answers, strict=True)
    ]


def test_a_row_does_not_see_its_neighbours(tmp_path: Path) -> None:
    model = load_model(folder(Qwen3Config(**SIZES, head_dim=16), tmp_path), torch.device("cpu"))
    first, second, third = some_rows(1, 1, 2)
    other, *_ = some_rows(2, 1)
    with torch.no_grad():
        one, _ = response_logprobs(model, pack([first, second, third]), 1.0, bf16=False)
        two, _ = response_logprobs(model, pack([other, second]), 1.0, bf16=False)
    n = len(second.tokens)
    torch.testing.assert_close(
        one[len(first.tokens) : len(first.tokens) + n], two[len(other.tokens) :], rtol=0, atol=1e-5
    )


def test_a_model_that_is_not_computed_as_transformers_does_is_refused(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_config(PhiConfig(**{**SIZES, "num_key_value_heads": 4}))
    torch.nn.init.normal_(model.lm_head.bias)  # a fresh model's is zero
    model.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"does not compute this model \(PhiForCausalLM\)"):
        load_model(tmp_path, torch.device("cpu"))


def test_an_empty_response_has_no_log_probabilities_and_disturbs_nobody(tmp_path: Path) -> None:
    model = load_model(folder(Qwen2Config(**SIZES, tie_word_embeddings=True), tmp_path), torch.device("cpu"))
    (row,) = some_rows(5, 1)
    empty = TrainingRow(row.prompt_tokens, row.tokens[:0], row.sampler_logprobs[:0], 0.0, 0)
    with torch.no_grad():
        alone, _ = response_logprobs(model, pack([row]), 1.0, bf16=False)
        both, _ = response_logprobs(model, pack([empty, row, empty]), 1.0, bf16=False)
        none, _ = response_logprobs(model, pack([empty]), 1.0, bf16=False)
    torch.testing.assert_close(both, alone, rtol=0, atol=1e-5)
    assert none.shape == (0,)


def cuts(budget: int, rows: Sequence[TrainingRow], pieces: Sequence[int]) -> list[MicroBatch]:
    packer, batches, rest = Packer(budget), [], list(rows)
    for size in pieces:
        batches += packer.add(rest[:size])
        rest = rest[size:]
    return [pack(batch) for batch in (*batches, *packer.flush())]


def test_batches_fill_the_budget_and_hold_every_token_that_is_needed_once() -> None:
    rows = some_rows(3, *[5] * 8)
    batches = cuts(100, rows, [40])
    assert all(batch.input_ids.shape[1] <= 100 for batch in batches)
    done = 0
    for batch, after in pairwise(batches):
        done += len(batch.lengths)
        shared = np.array_equal(rows[done - 1].prompt_tokens, rows[done].prompt_tokens)
        needed = len(rows[done].tokens) if shared else rows[done].length
        assert batch.input_ids.shape[1] + needed > 100
        assert after.targets[: len(rows[done].tokens)].tolist() == rows[done].tokens.tolist()
    assert torch.cat([batch.targets for batch in batches]).tolist() == np.concatenate([r.tokens for r in rows]).tolist()


def test_a_prompt_of_neighbouring_rows_is_there_once() -> None:
    rows = some_rows(4, 3, 2)
    batch = pack(rows)
    (first, _, _, second, _) = rows
    lengths = [len(row.tokens) for row in rows]
    assert batch.segments.lengths == (
        len(first.prompt_tokens),
        *lengths[:3],
        len(second.prompt_tokens),
        *lengths[3:],
    )
    assert batch.segments.prompts == (None, 0, 0, 0, None, 4, 4)
    assert batch.positions[0, batch.predicts].tolist() == [
        len(row.prompt_tokens) - 1 + i for row in rows for i in range(len(row.tokens))
    ]


def test_a_row_longer_than_the_budget_is_alone() -> None:
    rows = some_rows(3, 2, 1)
    assert [len(batch.lengths) for batch in cuts(1, rows, [3])] == [1, 1, 1]


def groups(seed: int, count: int, size: int = 4) -> list[TrainingRow]:
    """Groups of rows with one prompt each."""
    rng = np.random.default_rng(seed)

    def tokens(low: int, high: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return rng.integers(2, 200, rng.integers(low, high)).astype(np.int32)

    prompts = [tokens(3, 20) for _ in range(count)]
    answers = [(prompt, tokens(1, 30)) for prompt in prompts for _ in range(size)]
    return [TrainingRow(prompt, answer, np.zeros(len(answer), np.float32), 1.0, 0) for prompt, answer in answers]


def dealt(
    rows: list[TrainingRow], ranks: int, budget: int = 100, pieces: int = 7, padded: bool = False
) -> list[list[list[TrainingRow]]]:
    """By rank, its part of each round."""
    found = []
    for rank in range(ranks):
        dealer, parts = RankPartitioner(budget, rank, ranks, padded), []
        for start in range(0, len(rows), pieces):
            parts += dealer.add(rows[start : start + pieces])
        found.append([*parts, *dealer.flush()])
    return found


def size(rows: list[TrainingRow], padded: bool = False) -> int:
    return len(rows) * max(row.length for row in rows) if padded else pack(rows).input_ids.shape[1]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("padded", [False, True])
def test_every_row_is_dealt_once_in_order_and_every_rank_takes_part_in_every_round(
    ranks: int, count: int, padded: bool
) -> None:
    rows = groups(0, count)
    found = dealt(rows, ranks, padded=padded)
    assert len({len(parts) for parts in found}) == 1
    in_order = [row for parts in zip(*found, strict=True) for row in chain(*parts)]
    assert list(map(id, in_order)) == list(map(id, rows))
    assert all(size(part, padded) <= 100 for parts in found for part in parts if part)


def test_ranks_get_about_as_many_tokens_of_each_round() -> None:
    found = dealt(groups(1, 40), 4, budget=400)
    for parts in zip(*found, strict=True):
        sizes = [size(part) for part in parts]
        assert max(sizes) - min(sizes) <= 2 * (30 + 20), "cuts lie between rows"
    tokens = [sum(size(part) for part in parts) for parts in found]
    assert max(tokens) < 1.05 * min(tokens)


def test_ranks_share_padded_rounds_evenly() -> None:
    found = dealt(some_rows(3, *[5] * 8), 3, budget=150, pieces=11, padded=True)
    for parts in [*zip(*found, strict=True)][:-1]:
        assert max(size(part, padded=True) for part in parts) <= 150
        assert min(size(part, padded=True) for part in parts) > 50


def test_deals_depend_on_the_order_of_rows_alone() -> None:
    rows = groups(2, 10)
    shapes = {
        tuple(tuple(len(part) for part in parts) for parts in dealt(rows, 3, pieces=pieces)) for pieces in (1, 7, 40)
    }
    assert len(shapes) == 1


def test_one_rank_gets_what_the_packer_cuts() -> None:
    rows, packer = groups(3, 10), Packer(100)
    assert dealt(rows, 1) == [[*packer.add(rows), *packer.flush()]]


def test_fewer_rows_than_ranks_leave_the_last_ranks_without() -> None:
    rows = groups(4, 1, size=3)
    assert [[len(part) for part in parts] for parts in dealt(rows, 4)] == [[1], [1], [1], [0]]


@pytest.mark.parametrize("padded", [False, True])
def test_no_cut_into_as_many_parts_has_a_smaller_largest(padded: bool) -> None:
    rows = groups(5, 1, size=7)

    def largest(*parts: list[TrainingRow]) -> int:
        return max(size(part, padded) for part in parts)

    by_hand = (largest(rows[:a], rows[a:b], rows[b:]) for a in range(1, 6) for b in range(a + 1, 7))
    assert largest(*even(rows, 3, 1000, padded)) == min(by_hand)
