"""Compilation of the learner's layers (`train.compile`), and activation checkpointing.

    prepare_layers(model, bf16=True, kind="products", compiled=None)       # in place, once, before the first update

In a 4B model norms, rotations, gates and roundings move 30 GB for 8,192 tokens, which takes an H200 as long as the
products. Compiled, a layer is one graph, in which attention is an operator.

`train.activation_checkpointing` says what is kept for the backward pass, with the same bits in each setting:

    off         everything; compiled, all that needs a kernel of its own to recompute
    products    a layer's input, and the results of its matrix products and of attention
    layers      a layer's input; a third more work
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch._functorch import config as partitioning
from torch.nn.attention import varlen  # noqa: F401  (defines `torch_attn._varlen_attn`)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers import AttentionInterface, PreTrainedModel

from raypoly.core.errors import UsageError
from raypoly.core.values import Int32
from raypoly.learner.attention import PACKED, attend, has_flash
from raypoly.learner.packing import MicroBatch, pack
from raypoly.learner.policy_model import TOLERANCE, is_packed, layers_of, logprob_distance, response_logprobs
from raypoly.learner.training_rows import TrainingRow

Recomputing = Literal["off", "products", "layers"]

_aten = torch.ops.aten
_PRODUCTS = {
    _aten.mm.default,
    _aten.addmm.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_efficient_attention.default,
    torch.ops.torch_attn._varlen_attn.default,
}
BACKEND = "inductor"
# Environment variables that silently switch off PyTorch's compiler.
_SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
_ASKED = "train.compile=true, but "
_TOLERATED = {False: 1e-3, True: 0.1}  # largest relative difference of the gradient's norm, without and with bf16
_NOISE = 3  # in bf16: the same, over the difference between uncompiled layers and float32


def prepare_layers(model: PreTrainedModel, bf16: bool, kind: Recomputing, compiled: bool | None) -> str:
    """Compile the layers, or set up checkpointing without. Returns which, in words; empty on a CPU.

    `compiled`: `train.compile`. None compiles where a layer is one graph, and does without where that fails.
    """
    if compiled is None and is_packed(model) and _has_flash(model, bf16):
        try:
            compile_layers(model, bf16, kind)
            return "layers compiled"
        except UsageError as error:
            _undo(model)
            recompute(model, kind)
            return f"layers not compiled ({str(error).removeprefix(_ASKED)})"
    if compiled:
        compile_layers(model, bf16, kind)
        return "layers compiled"
    recompute(model, kind)
    return ""


def recompute(model: PreTrainedModel, kind: Recomputing) -> None:
    """Switch activation checkpointing on in the model's layers, uncompiled."""
    if kind == "off":
        return
    # No recomputed operation draws random numbers.
    how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if kind == "products":
        how["context_fn"] = partial(create_selective_checkpoint_contexts, _keep_products)
    model.gradient_checkpointing_enable(how)


def _keep_products(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


def _undo(model: PreTrainedModel) -> None:
    AttentionInterface.register(PACKED, attend)
    for layer in layers_of(model):
        layer._compiled_call_impl = None


def compile_layers(model: PreTrainedModel, bf16: bool, kind: Recomputing) -> None:
    """Compile for training and for log-probabilities, which takes a minute.

    Raises `UsageError` if PyTorch can't compile, or if compiled layers compute something else.
    """
    from torch._dynamo.exc import TorchDynamoException  # takes seconds to import

    if not is_packed(model):
        raise UsageError(
            f"{_ASKED}rows of this model ({type(model).__name__}) are padded to one length, which the "
            "learner does not compile: set train.compile=false."
        )
    for name in _SWITCHES:
        if os.environ.get(name) == "1":
            raise UsageError(f"{_ASKED}{name}=1 switches compilation off: unset one of the two.")
    if kind == "layers":
        recompute(model, kind)
    batch = _batch(_own_text(model, 12))
    logp_T, norm = _gradient(model, batch, bf16)
    exact_T, exact_norm = _gradient(model, batch, bf16=False) if bf16 else (logp_T, norm)
    # The two partitioner switches are global in PyTorch and are read at the first backward pass, below.
    partitioning.aggressive_recomputation = kind == "products"
    partitioning.is_non_builtin_to_include = True  # attention's operator is not recomputed either
    # On a CPU attention loops over segments, whose number changes with each batch: traced, every batch would compile
    # again. So there a layer is one graph before attention and one after it.
    traced = attend if _has_flash(model, bf16) else torch.compiler.disable(attend)  # type: ignore[no-untyped-call]
    AttentionInterface.register(PACKED, traced)
    for layer in layers_of(model):
        layer.compile(dynamic=True, backend=BACKEND)
    try:
        compiled_T, compiled_norm = _gradient(model, batch, bf16)
        with torch.no_grad():  # a graph of its own, compiled here and not in the middle of the first step
            response_logprobs(model, batch, 1.0, bf16)
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"{_ASKED}PyTorch can't compile this model here ({reason}). A C++ compiler has to be "
            "installed (apt install g++, xcode-select --install), on a GPU Triton too; or set train.compile=false."
        ) from error
    moved, off = logprob_distance(compiled_T, logp_T, bf16), abs(compiled_norm / norm - 1)
    noise = _NOISE * logprob_distance(exact_T, logp_T, bf16), _NOISE * abs(exact_norm / norm - 1)
    if not (moved <= max(TOLERANCE[bf16], noise[0]) and off <= max(_TOLERATED[bf16], noise[1])):
        raise UsageError(
            f"Compiled, this model ({type(model).__name__}) differs: log-probabilities are off by {moved:.2g}, "
            f"the gradient's norm by {off:.2g} of itself. Set train.compile=false."
        )


def _has_flash(model: PreTrainedModel, bf16: bool) -> bool:
    # Gemma 4's layers have heads of two sizes.
    config = model.config.get_text_config()
    sizes = [size for name, size in config.to_dict().items() if name.endswith("head_dim") and isinstance(size, int)]
    widest = max(sizes, default=config.hidden_size // config.num_attention_heads)
    return has_flash(model.device, torch.bfloat16 if bf16 else torch.float32, widest)


def _own_text(model: PreTrainedModel, length: int) -> Int32:
    # Rounding moves little on a model's own text. On arbitrary tokens it does: in bf16 the gradient of SmolLM2-135M on
    # tokens 0 to 11, which no training has seen, is as far from float32's as it is long.
    way, generator = model.config._attn_implementation, torch.Generator().manual_seed(0)
    ids_1L = torch.full((1, 1), model.config.get_text_config().vocab_size // 2, device=model.device)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        while ids_1L.shape[1] < length:
            weights_V = model(ids_1L, use_cache=False).logits[0, -1].float().softmax(-1)
            own = torch.multinomial(weights_V.cpu(), 1, generator=generator)
            ids_1L = torch.cat([ids_1L, own.to(model.device)[None]], dim=1)
    model.set_attn_implementation(way)
    return ids_1L[0].cpu().numpy().astype(np.int32)


def _batch(tokens: Int32) -> MicroBatch:
    cuts = (tokens[:3], tokens[3:7]), (tokens[:3], tokens[7:12]), (tokens[2:4], tokens[4:9])
    return pack([TrainingRow(prompt, own, np.zeros(len(own), np.float32), 1.0, 0) for prompt, own in cuts])


def _gradient(model: PreTrainedModel, batch: MicroBatch, bf16: bool) -> tuple[torch.Tensor, float]:
    """Log-probabilities, [T], and the norm of their sum's gradient."""
    logp_T, _ = response_logprobs(model, batch, 1.0, bf16)
    logp_T.sum().backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return logp_T.detach(), float(norm)
