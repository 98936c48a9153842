"""The cache of the transformers engine gives the bits of transformers' own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from transformers import AttentionInterface, AutoModelForCausalLM, LlamaConfig
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from raypoly.rollouts.engines.kv_cache import DECODING, GrowingLayer, attend, decode_as_sdpa


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("queries", "heads", "masked"), [(1, 4, True), (1, 4, False), (1, 2, True), (5, 4, True)])
def test_attention_gives_the_bits_of_transformers_own(
    dtype: torch.dtype, queries: int, heads: int, masked: bool
) -> None:
    draw = torch.Generator().manual_seed(queries + heads)
    query, key, value = (
        torch.randn(7, number, length, 16, generator=draw).to(dtype)
        for number, length in ((heads, queries), (2, 11), (2, 11))
    )
    mask = torch.rand(7, 1, queries, 11, generator=draw) < 0.8 if masked else None
    module = cast(Any, SimpleNamespace(num_key_value_groups=heads // 2, is_causal=True))
    found, _ = attend(module, query, key, value, mask, scaling=0.3)
    wanted, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.3)
    assert found.shape == (7, queries, heads, 16)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(("first", "most"), [(5, 1000), (50, 1000), (5, 120), (5, 10)])
def test_a_layer_holds_what_it_was_given_however_it_grows_and_thins_out(first: int, most: int) -> None:
    draw = torch.Generator().manual_seed(0)
    ours, theirs, rows = GrowingLayer(most), DynamicLayer(), 6
    for step, tokens in enumerate([first, *([1] * 40), 70, 1, 1]):
        states = [torch.randn(rows, 2, tokens, 3, generator=draw) for _ in range(2)]
        for found, wanted in zip(ours.update(*states), theirs.update(*states), strict=True):
            assert torch.equal(found, wanted)
        assert ours.get_seq_length() == theirs.get_seq_length()
        held = ours.keys.untyped_storage().nbytes() // (rows * 2 * 3 * ours.keys.element_size())
        assert held <= max(most, ours.get_seq_length()), "room beyond what was said to be wanted"
        if step in (0, 13, 41):
            kept = torch.tensor([0, 0, 3, 5]) if step == 0 else torch.arange(rows)[1:]
            ours.batch_select_indices(kept)
            theirs.batch_select_indices(kept)
            rows = len(kept)


@pytest.mark.parametrize(("own", "calls"), [("sdpa", 1), ("eager", 0)])
def test_a_model_with_attention_of_its_own_keeps_it(own: str, calls: int) -> None:
    config = LlamaConfig(vocab_size=11, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=own)
    decode_as_sdpa(model)
    seen: list[torch.Tensor] = []

    def counted(module: torch.nn.Module, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(query)
        return attend(module, query, *args, **kwargs)

    AttentionInterface.register(DECODING, counted)
    try:
        model(torch.arange(4)[None])
    finally:
        AttentionInterface.register(DECODING, attend)
    assert len(seen) == calls
