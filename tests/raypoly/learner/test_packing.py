"""Packed rows against rows padded to one length, computed by transformers itself; and how rows are cut into batches."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PhiConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from raypoly.core.errors import UsageError
from raypoly.core.values import Int32
from raypoly.learner.packing import MicroBatch, Packer, pack
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
KNOWN = {
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=False),
    "llama": LlamaConfig(**SIZES),
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


def padded_logprobs(model: PreTrainedModel, rows: Sequence[TrainingRow]) -> tuple[Tensor, Tensor]:
    """By the model's own attention, with a mask over the padding and full logits."""
    width = max(row.length for row in rows)
    ids_BL, mask_BL = torch.zeros(len(rows), width, dtype=torch.int64), torch.zeros(len(rows), width, dtype=torch.int64)
    for i, row in enumerate(rows):
        ids_BL[i, : row.length] = torch.from_numpy(np.concatenate([row.prompt_tokens, row.tokens]))
        mask_BL[i, : row.length] = 1
    logp_BLV = torch.log_softmax(model(input_ids=ids_BL, attention_mask=mask_BL, use_cache=False).logits, -1)
    entropy_BL = -(logp_BLV.exp() * logp_BLV).sum(-1)
    logp, entropy = [], []
    for i, row in enumerate(rows):
        places = torch.arange(len(row.prompt_tokens), row.length)
        logp.append(logp_BLV[i, places - 1, ids_BL[i, places]])
        entropy.append(entropy_BL[i, places - 1])
    return torch.cat(logp), torch.cat(entropy)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", KNOWN)
def test_packed_equals_padded(name: str, dtype: torch.dtype, tolerance: float, tmp_path: Path) -> None:
    """Float64 could differ by a rounding of float32, in which transformers computes norms and rotary angles."""
    path = folder(KNOWN[name], tmp_path)
    packed = load_model(path, torch.device("cpu")).to(dtype)
    padded = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa").to(dtype)
    rows = some_rows(0, 3, 1, 1, 4)
    results = []
    for model, (logp_T, entropy_T) in [
        (padded, padded_logprobs(padded, rows)),
        (packed, response_logprobs(packed, pack(rows), 1.0, bf16=False)),
    ]:
        assert logp_T.dtype == dtype
        weight_T = torch.linspace(-1, 1, len(logp_T), dtype=dtype)
        (weight_T * logp_T + 0.3 * weight_T.flip(0) * entropy_T).sum().backward()
        gradients = {f"gradient of {key}": parameter.grad for key, parameter in model.named_parameters()}
        results.append({"logp": logp_T.detach(), "entropy": entropy_T.detach(), **gradients})
    want, got = results
    assert set(want) == set(got)
    worst = {key: float((want[key] - got[key]).norm() / want[key].norm()) for key in want}
    assert max(worst.values()) < tolerance, worst


def test_a_row_does_not_see_its_neighbours(tmp_path: Path) -> None:
    model = load_model(folder(KNOWN["qwen3"], tmp_path), torch.device("cpu"))
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
    model = load_model(folder(KNOWN["qwen2"], tmp_path), torch.device("cpu"))
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
