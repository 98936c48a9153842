"""Sizes of models: as transformers builds them, to the weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from raypoly.learner.adapters import add_adapters
from raypoly.learner.policy_model import is_packed, load_model
from raypoly.learner.tiny_model import build_model
from raypoly.planning.model_shape import PUBLISHED, TINY, context_of, from_config, is_mixture, row_layout, shape_of
from tests.raypoly.learner.test_model_families import PACKED, PADDED
from tests.raypoly.learner.test_packing import folder

SIZES: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 96,
    "intermediate_size": 272,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


def on_meta(config: Any) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "config",
    [
        Qwen3Config(**SIZES, head_dim=32),
        Qwen3Config(**SIZES, head_dim=32, attention_bias=True),
        Qwen2Config(**SIZES),
        LlamaConfig(**SIZES),
        LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
        MistralConfig(**SIZES, sliding_window=512),
    ],
    ids=["qwen3", "qwen3 with biases", "qwen2", "llama", "llama with biases", "mistral"],
)
def test_a_shape_counts_the_weights_that_transformers_makes(config: Any, tied: bool, tmp_path: Path) -> None:
    config.tie_word_embeddings = tied
    model = on_meta(config)
    shape = from_config(config.to_dict())
    assert shape is not None
    assert shape.parameters == sum(weight.numel() for weight in model.parameters())
    config.save_pretrained(tmp_path)
    assert shape_of(str(tmp_path)) == shape, "the file that a folder has says the same"
    add_adapters(model.to_empty(device="cpu"), rank=4, alpha=4, seed=0)
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert shape.adapters(4) == trained


def test_a_cache_holds_a_key_and_a_value_for_each_layer_and_token() -> None:
    config = Qwen3Config(**SIZES, head_dim=32)
    shape = from_config(config.to_dict())
    assert shape is not None
    with torch.no_grad():
        ids = torch.zeros(1, 5, dtype=torch.int64)
        cache = AutoModelForCausalLM.from_config(config)(ids, use_cache=True).past_key_values
    held = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)
    assert shape.cache_bytes(4) * 5 == 4 * held


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("Qwen/Qwen3-4B", 4_022_468_096),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen2.5-0.5B", 494_032_768),
        ("Qwen/Qwen2.5-7B", 7_615_616_512),
        ("meta-llama/Llama-3.2-1B", 1_235_814_400),
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
    ],
)
def test_published_models_have_the_weights_that_their_files_have(name: str, weights: int) -> None:
    assert PUBLISHED[name].parameters == weights


def test_a_variant_of_a_published_model_has_its_shape_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert shape_of("Qwen/Qwen3-4B-Base") == PUBLISHED["Qwen/Qwen3-4B"]
    assert shape_of("Qwen/Qwen2.5-Coder-7B-Instruct") == PUBLISHED["Qwen/Qwen2.5-7B"]


def test_the_tiny_models_shape_is_that_of_the_model_that_is_built() -> None:
    model = build_model(TINY.vocabulary, seed=0)
    assert model.config.max_position_embeddings == context_of(None)
    assert from_config(model.config.to_dict()) == TINY


def test_what_is_not_known_is_no_shape(tmp_path: Path) -> None:
    assert shape_of("nobody/no-such-model") is None
    assert from_config({**SIZES, "model_type": "mamba"}) is None
    assert from_config({"model_type": "qwen3", "hidden_size": 96}) is None
    (tmp_path / "config.json").write_text("no JSON")
    assert shape_of(str(tmp_path)) is None
    (tmp_path / "config.json").write_text(json.dumps([1]))
    assert shape_of(str(tmp_path)) is None


@pytest.mark.parametrize("name", [*PACKED, *PADDED])
def test_what_is_said_is_what_the_learner_does(name: str, tmp_path: Path) -> None:
    path = folder((PACKED | PADDED)[name], tmp_path)
    said = row_layout(str(path))
    assert said in (None, "packed" if is_packed(load_model(path, torch.device("cpu"))) else "padded")
    assert said is not None or name in ("granite", "cohere", "falcon mamba"), "their configs tell of no layers"


def test_the_tiny_and_the_published_models_are_packed_and_an_unknown_one_is_unknown() -> None:
    assert row_layout(None) == row_layout("Qwen/Qwen3-4B-Base") == "packed"
    assert row_layout("nobody/secret-70B") is None


def test_a_text_model_within_a_larger_config_is_read(tmp_path: Path) -> None:
    text = PADDED["qwen3.5"].to_dict()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": text}))
    assert row_layout(str(tmp_path)) == "padded"


def test_a_text_model_within_a_larger_config_may_be_a_mixture(tmp_path: Path) -> None:
    for experts, mixture in ((4, True), (1, False)):
        written = {"model_type": "qwen3_5_moe", "text_config": {"num_experts": experts}}
        (tmp_path / "config.json").write_text(json.dumps(written))
        assert is_mixture(str(tmp_path)) == mixture
