"""The head of vLLM's CPU engine: a tensor of its own, kept in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from transformers import AutoConfig, AutoModelForCausalLM

from raypoly.core.errors import UsageError
from raypoly.learner.logprobs import bf16_factors

# That engine computes with packed copies of weights. A head that is the embedding gets no update of its own: vLLM 0.32
# then goes on with the old copy. Untied (`tie_word_embeddings`), it is updated and hashed like any tensor. The
# checkpoint has no such tensor, so the loader here gives it the embedding's.
#
# For logits in float32 (`head_dtype`) vLLM casts the head at every step on a CPU: with a vocabulary of 49,152 that is
# most of a step of a small model. A head that is float32 already, with the values that bfloat16 has, needs no cast.
# Then oneDNN may compute the logits (`bf16_factors`): MKL takes twice as long on AMD's.
LOAD_FORMAT = "raypoly_untied"


def tied_heads(folder: Path) -> Mapping[str, str]:
    """The names of tied weights, each with the one that it is tied to; empty for an untied model."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return dict(model.all_tied_weights_keys or {})


@cache
def register_loader() -> None:
    """Register `LOAD_FORMAT`: vLLM's own loader, with the weights under both names."""
    loaders = import_module("vllm.model_executor.model_loader")
    own = import_module("vllm.model_executor.model_loader.default_loader").DefaultModelLoader

    class UntiedLoader(own):  # type: ignore[misc,valid-type]
        def __init__(self, load_config: Any) -> None:
            super().__init__(replace(load_config, load_format="auto"))

        def get_all_weights(self, model_config: Any, model: Module) -> Iterator[tuple[str, torch.Tensor]]:
            heads = tied_heads(Path(model_config.model))
            for name, tensor in super().get_all_weights(model_config, model):
                if name not in heads:
                    yield name, tensor
                    yield from ((head, tensor) for head, source in heads.items() if source == name)

        def load_weights(self, model: Module, model_config: Any) -> None:
            missing = tied_heads(Path(model_config.model)).keys() - dict(model.named_parameters()).keys()
            if missing:
                raise UsageError(
                    f"vLLM's CPU engine keeps the {min(missing)} of {type(model).__name__} tied, and would not update "
                    "it: set generator.engine=transformers."
                )
            super().load_weights(model, model_config)

    loaders.register_model_loader(LOAD_FORMAT)(UntiedLoader)


def keep_in_float32(model: Module) -> None:
    """Keep the head so, now and in all reloads, which copy into the tensor that is there."""
    head: Any = import_module("vllm.model_executor.layers.vocab_parallel_embedding").ParallelLMHead
    processor: Any = import_module("vllm.model_executor.layers.logits_processor").LogitsProcessor
    heads = [module for module in model.modules() if isinstance(module, head)]
    rounded = any(each.weight.dtype == torch.bfloat16 for each in heads)  # so are the hidden states
    for each in heads:
        each.weight.data = each.weight.data.float()
    for module in model.modules():
        if rounded and isinstance(module, processor):
            module._apply_head = bf16_factors()(module._apply_head)
