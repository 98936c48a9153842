"""Activation checkpointing (gradient checkpointing): which activations of a layer are kept, and which recomputed.

    off         all are kept
    products    a layer's input and the results of its matrix products and of attention; the rest is recomputed
    layers      only a layer's input; the whole layer is recomputed, a third more work

The results have the same bits with each setting.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch.nn.attention import varlen  # noqa: F401  (defines `torch_attn._varlen_attn`)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers import PreTrainedModel

Recomputing = Literal["off", "products", "layers"]

_aten = torch.ops.aten
_PRODUCTS = {
    _aten.mm.default,
    _aten.addmm.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_efficient_attention.default,
    torch.ops.torch_attn._varlen_attn.default,
}


def recompute(model: PreTrainedModel, kind: Recomputing) -> None:
    """Switch activation checkpointing on in the model's layers."""
    if kind == "off":
        return
    # No recomputed operation draws random numbers.
    how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if kind == "products":
        how["context_fn"] = partial(create_selective_checkpoint_contexts, _keep_products)
    model.gradient_checkpointing_enable(how)


def _keep_products(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE
