"""Weights in a vLLM engine: their hashes by transformers' names, and the CPU engine's head, a tensor of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from raypoly.learner.weight_hash import weight_hash

# The CPU engine computes with packed copies of weights. A head that is the embedding gets no update of its own: vLLM
# 0.32 then goes on with the old copy. Untied (`tie_word_embeddings`), it is updated and hashed like any tensor. The
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


def keep_head_in_float32(model: Module) -> None:
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


# vLLM keeps several matrices of a layer in one parameter, below each other: the model's `packed_modules_mapping` names
# them, the layer's `output_sizes` has their rows. Embedding and head have rows beyond the vocabulary. Parameters that
# are divided over GPUs (tensor parallelism) are not supported, since raypoly divides none.
#
# On a GPU the parameters are what the kernels read. vLLM's CPU engine instead packs a copy of each linear layer's
# weight, the head's too, and computes with that. There a layer is hashed when all of it is loaded, in the engine's
# dtype, just before it is packed. This proves what arrived and what went into the packing, not the packed copy itself.
class LoadedWeights:
    """Weights of one model, from its construction on. Packed ones are known after the first update."""

    def __init__(self, model: Module, dtype: torch.dtype) -> None:
        self._model, self._dtype = model, dtype
        self._fused: Mapping[str, Sequence[str]] = getattr(model, "packed_modules_mapping", {})
        self._packed: dict[str, str] = {}
        for path, module in model.named_modules():
            if hasattr(module, "cpu_linear"):
                self._hash_before_packing(path, module)

    def hashes(self) -> dict[str, str]:
        """`weight_hash` by transformers' names. A difference between a packed and a kept weight is in the text."""
        kept = dict(
            named
            for path, module in self._model.named_modules(remove_duplicate=False)
            for named in hash_module(path, module, self._fused, self._dtype)
        )
        stale = {name for name in self._packed.keys() & kept.keys() if self._packed[name] != kept[name]}
        return self._packed | kept | {name: f"{kept[name]}, packed {self._packed[name]}" for name in stale}

    def _hash_before_packing(self, path: str, module: Any) -> None:
        method = module.quant_method
        pack = method.process_weights_after_loading

        def hash_and_pack(layer: Module) -> None:
            self._packed.update(hash_module(path, layer, self._fused, self._dtype))
            pack(layer)

        method.process_weights_after_loading = hash_and_pack


def hash_module(
    path: str, module: Any, fused: Mapping[str, Sequence[str]], dtype: torch.dtype
) -> Iterator[tuple[str, str]]:
    """Names and hashes of the module's own parameters; those that were packed away are empty and left out."""
    outer, dot, kind = path.rpartition(".")
    parts = fused.get(kind, (kind,))
    for own, parameter in module.named_parameters(recurse=False):
        if not parameter.numel():
            continue
        rows = module.output_sizes if len(parts) > 1 else [getattr(module, "org_vocab_size", len(parameter))]
        for part, tensor in zip(parts, parameter[: sum(rows)].split(rows), strict=True):
            yield f"{outer}{dot}{part}.{own}" if part else own, weight_hash(tensor, dtype)
