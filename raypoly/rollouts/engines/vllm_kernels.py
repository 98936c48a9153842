"""Faster steps of vLLM's CPU engine, which compiles nothing.

Without a compiler vLLM 0.32 computes RMSNorm as eight PyTorch operations, though its CPU build has a kernel for it. It
also ranks the drawn token in its vocabulary at every position, which nobody here reads. SmolLM2-135M, two cores: 628
tokens/s become 773 with 64 sequences at once, and 850 become 1,079 with 256.

In float32 the norms stay as they are: there they take little of a step, and seeded runs keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module


def fuse_norms(model: Module) -> None:
    """Let the bfloat16 norms of `model` use vLLM's kernels for a CPU. Weights are read at each call."""
    norm: Any = import_module("vllm.model_executor.layers.layernorm").RMSNorm
    for module in model.modules():
        plain = type(module) is norm and module.has_weight and module.variance_size_override is None
        if plain and module.weight.dtype == torch.bfloat16:
            module.forward = _fused(module)


def skip_ranks() -> None:
    """Let vLLM's sampler in this process report rank 0 for every token, uncounted."""
    sampler: Any = import_module("vllm.v1.sample.sampler")
    sampler.batched_count_greater_than = _no_ranks


def _fused(norm: Any) -> Callable[..., Any]:
    kernels = torch.ops._C

    def forward(x: Tensor, residual: Tensor | None = None) -> Any:
        x = x.contiguous()  # the kernels take no strides
        if residual is None:
            normed = torch.empty_like(x)
            kernels.rms_norm(normed, x, norm.weight.data, norm.variance_epsilon)
            return normed
        residual = residual.contiguous()
        kernels.fused_add_rms_norm(x, residual, norm.weight.data, norm.variance_epsilon)  # changes both
        return x, residual

    return forward


def _no_ranks(logprobs: Tensor, chosen: Tensor) -> Tensor:
    return torch.zeros(len(logprobs), dtype=torch.int64)
