"""Models of many families against transformers' own, one row at a time: packed where that is right, else padded.

All is in float64 here. transformers computes norms, rotary angles, softmax and recurrences in float32; where it asks
for float32 it gets float64.
"""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    FalconMambaConfig,
    Gemma2Config,
    Gemma3TextConfig,
    Gemma4TextConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.mistral.modeling_mistral import MistralAttention

from raypoly.core.errors import UsageError
from raypoly.learner.packing import pack
from raypoly.learner.policy_model import describe_rows, forward, is_packed, load_model, response_logprobs
from raypoly.learner.training_rows import TrainingRow
from tests.raypoly.learner.test_packing import SIZES, VOCABULARY, folder, some_rows

CPU = torch.device("cpu")
FOUR = SIZES | {"num_hidden_layers": 4, "head_dim": 16}
_GEMMA4: dict[str, Any] = FOUR | {
    "global_head_dim": 32,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY,
    "sliding_window": 6,
    "final_logit_softcapping": 3.0,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
QWEN3_5 = Qwen3_5TextConfig(
    **FOUR, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4
)
GEMMA4 = Gemma4TextConfig(**_GEMMA4)
PACKED: Mapping[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "qwen2 with tied weights": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "mistral": MistralConfig(**SIZES, sliding_window=4),
    "qwen2 with a window": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "gemma3": Gemma3TextConfig(**FOUR, sliding_window=5, final_logit_softcapping=2.0),
    "gemma4": GEMMA4,
    "gemma4 with shared keys": Gemma4TextConfig(**_GEMMA4, num_kv_shared_layers=2),
    "granite": GraniteConfig(**SIZES, logits_scaling=4.0),
    "cohere": CohereConfig(**SIZES),
}
PADDED: Mapping[str, PreTrainedConfig] = {
    "qwen3.5": QWEN3_5,
    "gemma2": Gemma2Config(**FOUR, sliding_window=5, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "falcon mamba": FalconMambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4),
}


class Exact(TorchFunctionMode):
    """Float64 wherever float32 is asked for."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def exact(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(exact, args), **{name: exact(value) for name, value in (kwargs or {}).items()})


def own_logprobs(model: PreTrainedModel, rows: list[TrainingRow], temperature: float) -> tuple[Tensor, Tensor]:
    """By the model's own eager attention and full logits, one row at a time."""
    logp, entropy = [], []
    for row in rows:
        ids_L = torch.from_numpy(np.concatenate([row.prompt_tokens, row.tokens]).astype(np.int64))
        logits_LV = model(ids_L[None], use_cache=False).logits[0]
        logp_TV = torch.log_softmax(logits_LV[len(row.prompt_tokens) - 1 : -1] / temperature, -1)
        logp.append(logp_TV.gather(1, ids_L[len(row.prompt_tokens) :, None])[:, 0])
        entropy.append(-(logp_TV.exp() * logp_TV).sum(-1))
    return torch.cat(logp), torch.cat(entropy)


def results(model: PreTrainedModel, logp_T: Tensor, entropy_T: Tensor) -> dict[str, Tensor]:
    """A loss of both, and its gradient by every parameter."""
    weight_T = torch.linspace(-1, 1, len(logp_T), dtype=logp_T.dtype)
    loss = (weight_T * logp_T + 0.3 * weight_T.flip(0) * entropy_T).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    named = {f"gradient of {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"logp": logp_T.detach(), "entropy": entropy_T.detach(), "loss": loss.detach(), **named}


WAYS = [*((name, "packed") for name in PACKED), *((name, "padded") for name in [*PACKED, *PADDED])]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_log_probabilities_loss_and_gradients_are_those_of_transformers(name: str, way: str, tmp_path: Path) -> None:
    path = folder((PACKED | PADDED)[name], tmp_path)
    model = load_model(path, CPU).double()
    assert is_packed(model) is (name in PACKED)
    assert ("rows packed" in describe_rows(model)) is (name in PACKED)
    if is_packed(model) and way == "padded":  # as if packing were impossible
        model.set_attn_implementation("sdpa")
    own = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").double()
    rows = [*some_rows(0, 3, 1, 1, 4), TrainingRow(*some_tokens(90), np.zeros(40, np.float32), 1.0, 0)]
    with Exact():
        want = results(own, *own_logprobs(own, rows, 0.7))
        outputs = forward(model, pack(rows), 0.7, bf16=False, chunk_mib=1, prompts=True)
        got = results(model, outputs.logp_T, outputs.entropy_T)
        means = [
            own.base_model(torch.from_numpy(row.prompt_tokens.astype(np.int64))[None]).last_hidden_state[0].mean(0)
            for row in rows
        ]
    assert want.keys() == got.keys()
    assert len(want) > 3 + 8
    assert {value.dtype for value in got.values()} == {torch.float64}
    assert outputs.prompt_hidden_SH is not None
    want["prompt means"], got["prompt means"] = torch.stack(means).detach(), outputs.prompt_hidden_SH.detach()
    apart = {key: float((want[key] - got[key]).abs().max()) for key in want}
    assert max(apart.values()) < 1e-8, apart


@pytest.mark.parametrize("window", [1, 2, 5, 11, 12, 40])
def test_a_window_is_as_wide_as_in_transformers(window: int, tmp_path: Path) -> None:
    """The prompt has 6 tokens, the response 6: windows end within each, at a border, and behind both."""
    path = folder(MistralConfig(**SIZES, sliding_window=window), tmp_path)
    model = load_model(path, CPU).double()
    assert is_packed(model)
    own = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager")
    tokens = np.arange(2, 14, dtype=np.int32)
    rows = [TrainingRow(tokens[:6], tokens[6:], np.zeros(6, np.float32), 1.0, 0)] * 2
    with torch.no_grad(), Exact():
        got, _ = response_logprobs(model, pack(rows), 1.0, bf16=False)
        want, _ = own_logprobs(own, rows, 1.0)
        model.config.sliding_window = window + 1
        wider, _ = response_logprobs(model, pack(rows), 1.0, bf16=False)
    assert float((got - want).abs().max()) < 1e-8
    assert (float((wider - want).abs().max()) > 1e-4) is (window < 11)


def test_a_window_that_is_left_out_of_attention_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check's rows are longer than the window, so such a model is padded instead."""
    path = folder(MistralConfig(**SIZES, sliding_window=90), tmp_path)
    monkeypatch.setattr(MistralAttention, "forward", without_window(MistralAttention.forward))
    assert not is_packed(load_model(path, CPU))


def test_a_window_that_no_check_reaches_is_said(tmp_path: Path) -> None:
    model = load_model(folder(MistralConfig(**SIZES, sliding_window=4096), tmp_path), CPU)
    assert describe_rows(model).endswith("prompts shared (nothing was checked beyond a window of 4,096 tokens)")


def without_window(forward: Callable[..., Any]) -> Callable[..., Any]:
    def changed(self: MistralAttention, *args: Any, **kwargs: Any) -> Any:
        self.config, config = copy.copy(self.config), self.config
        try:
            self.config.sliding_window = None
            return forward(self, *args, **kwargs)
        finally:
            self.config = config

    return changed


def some_tokens(length: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A prompt and a response of 40 tokens: together longer than a chunk of linear attention."""
    tokens = np.random.default_rng(7).integers(2, VOCABULARY, length).astype(np.int32)
    return tokens[:-40], tokens[-40:]


def test_a_mixture_of_experts_is_refused_in_a_sentence(tmp_path: Path) -> None:
    config = Qwen3MoeConfig(**SIZES, head_dim=16, num_experts=4, moe_intermediate_size=16)
    with pytest.raises(UsageError, match=r"Qwen3MoeForCausalLM\) is a mixture of experts.*set model\.path to a dense"):
        load_model(folder(config, tmp_path), CPU)
