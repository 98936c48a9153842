"""Low-rank adapters (LoRA, arXiv 2106.09685) through peft: W + (alpha / rank) B A, with only A and B trained.

    add_adapters(model, rank=32, alpha=32, seed=0)      # every linear layer but the head; B is zero, A is drawn
    trained = trained_weights(model)                    # for a checkpoint
    for name, weight in merged_weights(model, whole): ...  # for an engine, by the transformers names

Merging never changes the model, whose bits subtraction would not restore.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

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


def merged_weights(model: PreTrainedModel, whole: Callable[[Tensor], Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Whole weights by their transformers names, with the adapters' products added. Unadapted ones are not copied.

    `whole` gathers a tensor of which this rank has a part.
    """
    layers = {f"{name}.": module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}
    for name, tensor in model.state_dict().items():
        if ".lora_A." in name or ".lora_B." in name:
            continue
        weight = whole(tensor)
        owner, base, rest = name.partition("base_layer.")
        if base and rest == "weight":
            layer = layers[owner]
            a, b = (whole(part[_NAME].weight.detach()) for part in (layer.lora_A, layer.lora_B))
            weight = weight + b @ a * layer.scaling[_NAME]
        yield owner + rest if base else name, weight
