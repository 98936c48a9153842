"""Low-rank adapters (LoRA, arXiv 2106.09685) through peft: W + (alpha / rank) B A, with only A and B trained.

    add_adapters(model, rank=32, alpha=32, seed=0)      # every linear layer but the head; B is zero, A is drawn
    trained = trained_weights(model)                    # for a checkpoint
    for name, weight in merged_weights(model, whole).items(): weight.make()      # by the transformers names

Merging never changes the model, whose bits subtraction would not restore.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from raypoly.core.errors import UsageError

_NAME = "default"  # peft's name for a model's only set of adapters


def add_adapters(model: PreTrainedModel, rank: int, alpha: int, seed: int) -> None:
    """Put adapters into the model and freeze all else. The same seed draws the same weights on every device.

    Raises `UsageError` if peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UsageError("model.lora_rank needs the package peft: pip install 'raypoly[lora]'.") from error
    with torch.random.fork_rng():
        inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear"), model)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if ".lora_A." in name:
            drawn = torch.nn.init.kaiming_uniform_(torch.empty(parameter.shape), a=math.sqrt(5), generator=generator)
            parameter.data.copy_(drawn)


def trained_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The parameters that have gradients, by name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad}


@dataclass(frozen=True)
class MergedWeight:
    like: Tensor
    """On the meta device: shape and type of the whole weight."""
    make: Callable[[], Tensor]
    """The whole weight with the adapters' product added; without adapters not copied."""


def merged_weights(model: PreTrainedModel, whole: Callable[[Tensor], Tensor]) -> dict[str, MergedWeight]:
    """By transformers names, in the model's order. `whole` gathers a tensor of which this rank has a part."""
    layers = {f"{name}.": module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}

    def make(tensor: Tensor, layer: Any) -> Tensor:
        weight = whole(tensor)
        if layer is None:
            return weight
        a, b = (whole(part[_NAME].weight.detach()) for part in (layer.lora_A, layer.lora_B))
        merged: Tensor = weight + b @ a * layer.scaling[_NAME]
        return merged

    found = {}
    for name, tensor in model.state_dict().items():
        if ".lora_A." in name or ".lora_B." in name:
            continue
        owner, base, rest = name.partition("base_layer.")
        layer = layers[owner] if base and rest == "weight" else None
        like = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        found[owner + rest if base else name] = MergedWeight(like, partial(make, tensor, layer))
    return found
