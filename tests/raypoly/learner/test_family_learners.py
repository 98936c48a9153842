"""A learner of a padded model, and of one with windows, on several ranks, with adapters, recomputation and a head."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedConfig

from raypoly.core.errors import UsageError
from raypoly.learner.packing import Packer, pack
from raypoly.learner.ranks import ONE
from raypoly.learner.training_rows import TrainingRow
from tests.raypoly.learner.test_model_families import GEMMA4, QWEN3_5
from tests.raypoly.learner.test_packing import folder as random_folder
from tests.raypoly.learner.test_packing import some_rows
from tests.raypoly.learner.test_sharding import Case, assert_same, trained
from tests.support.compilers import needs_peft
from tests.support.random_rows import random_rows
from tests.support.rank_processes import RankProcesses

CASES = {
    "padded": (QWEN3_5, Case({"token_budget": 80})),
    "padded, fewer rows than ranks": (QWEN3_5, Case({"token_budget": 80}, counts=(1, 3, 0), sizes=(4,))),
    "padded and recomputed, with a reference": (
        QWEN3_5,
        Case({"activation_checkpointing": "layers"}, loss={"kl_coefficient": 0.2, "entropy_coefficient": 0.01}),
    ),
    "padded, adapters": (QWEN3_5, Case(model={"lora_rank": 4})),
    "padded, a head of the loss": (QWEN3_5, Case(loss={"name": "flowrl", "beta": 1.0}, counts=(8, 1))),
    "windows": (GEMMA4, Case()),
}


def made(config: PreTrainedConfig, path: Path) -> Path:
    larger = copy.deepcopy(config)
    larger.vocab_size = 200  # as random rows need
    if hasattr(larger, "vocab_size_per_layer_input"):
        larger.vocab_size_per_layer_input, larger.num_kv_shared_layers = 200, 2
    return random_folder(larger, path)


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs_peft if "adapters" in n else ()) for n in CASES])
def test_ranks_give_the_losses_and_weights_of_one(together: RankProcesses, tmp_path: Path, name: str) -> None:
    config, case = CASES[name]
    folder = made(config, tmp_path)
    one = trained(ONE, case, folder)
    for size in case.sizes:
        assert_same(together.run(size, trained, case, folder), one)


def test_in_bf16_several_ranks_round_what_one_rounds(together: RankProcesses, tmp_path: Path) -> None:
    case = Case(model={"dtype": "bfloat16"}, counts=(8,))
    folder = made(QWEN3_5, tmp_path)
    one, (two, _) = trained(ONE, case, folder), together.run(2, trained, case, folder)
    assert two.stats[0].loss == pytest.approx(one.stats[0].loss, rel=1e-5)
    assert two.stats[0].grad_norm == pytest.approx(one.stats[0].grad_norm, rel=1e-5)
    assert two.stats[0].entropy == pytest.approx(one.stats[0].entropy, rel=1e-5)


@pytest.mark.parametrize("config", [QWEN3_5, GEMMA4], ids=["padded", "windows"])
def test_recomputed_activations_give_the_same_bits(config: PreTrainedConfig, tmp_path: Path) -> None:
    folder, digests = made(config, tmp_path), set()
    for kind in ("off", "products", "layers"):
        case = Case({"activation_checkpointing": kind}, counts=(8,))
        digests.add(case.update(case.learner(ONE, folder)).weight_digest)
    assert len(digests) == 1


def test_compilation_of_a_padded_model_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"train\.compile=true, but rows of .*Qwen3_5.* are padded.*train\.compile=false"
    ):
        Case({"compile": True}).learner(ONE, made(QWEN3_5, tmp_path))


def test_cross_logprobs_of_a_padded_model_are_those_of_single_rows(tmp_path: Path) -> None:
    learner = Case({"token_budget": 100}).learner(ONE, made(QWEN3_5, tmp_path))
    rows = random_rows(0)[:4]
    prompts, responses = [row.prompt_tokens for row in rows], [row.tokens for row in rows]
    for tokens, got_PT in zip(responses, learner.cross_logprobs(prompts, responses), strict=True):
        want_PT = np.stack([learner.logprobs(prompt, tokens, 1.0) for prompt in prompts])
        np.testing.assert_allclose(got_PT, want_PT, rtol=0, atol=1e-5)


@pytest.mark.parametrize("budget", [1, 60, 100, 400])
def test_a_padded_batch_counts_every_row_as_long_as_its_longest(budget: int) -> None:
    rows = some_rows(3, *[5] * 8)
    packer = Packer(budget, padded=True)
    batches = [*packer.add(rows[:7]), *packer.add(rows[7:]), *packer.flush()]
    assert [row for batch in batches for row in batch] == rows
    for batch, after in pairwise(batches):
        assert size(batch) <= budget or len(batch) == 1
        assert size([*batch, after[0]]) > budget
    for batch in batches:
        assert pack(batch).segments.padded()[0].numel() == size(batch)


def size(rows: Sequence[TrainingRow]) -> int:
    return len(rows) * max(row.length for row in rows)
