"""Hashes of the weights in a vLLM engine, by transformers' names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Module

from raypoly.learner.weight_hash import weight_hash


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
