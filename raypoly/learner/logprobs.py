"""Log-probabilities and entropies of chosen tokens, with gradients, without an array of [tokens, vocabulary].

    logp_T, entropy_T = token_logprobs(hidden_TH, model.lm_head.weight, targets_T, temperature=1.0)

With z = head @ hidden / temperature and p = softmax(z):

    logp = z[target] - logsumexp(z)       d logp / dz_j    = [j = target] - p_j
    entropy = -sum_j p_j log p_j          d entropy / dz_j = -p_j (log p_j + entropy)

Where a model caps its logits x = head @ hidden (Gemma), z = cap tanh(x / cap) / temperature and
dz / dx = (1 - tanh^2) / temperature.

PyTorch's own `linear_cross_entropy` gives logp alone, so it can't train an entropy or a KL term.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from raypoly.learner.logit_chunks import CHUNK_MIB, tokens_of_chunk


def token_logprobs(
    hidden_TH: Tensor,
    head_VH: Tensor,
    targets_T: Tensor,
    temperature: float,
    chunk_mib: int = CHUNK_MIB,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy (nats) of each target, [T] each, both differentiable in `hidden_TH` and `head_VH`.

    Matrices are multiplied in autocast's type if it is on; all else is in float32, or in float64 for float64 input.
    `chunk_mib` bounds the logits in memory; `cap` is the model's soft cap on logits.
    """
    device = hidden_TH.device.type
    how = _How(
        temperature=temperature,
        chunk_mib=chunk_mib,
        product=torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_TH.dtype,
        exact=torch.float64 if hidden_TH.dtype == torch.float64 else torch.float32,
        cap=cap,
    )
    logp_T, entropy_T = _TokenLogprobs.apply(hidden_TH, head_VH, targets_T, how)  # type: ignore[no-untyped-call]
    return logp_T, entropy_T


@dataclass(frozen=True)
class _How:
    temperature: float
    chunk_mib: int
    product: torch.dtype
    """Of the factors of matrix products."""
    exact: torch.dtype
    """Of everything else."""
    cap: float | None
    """Of logits, before the temperature."""

    def factor(self, tensor: Tensor) -> Tensor:
        """Rounded to `product`; widened again on a CPU, whose products have their factors' type."""
        rounded = tensor.to(self.product)
        return rounded if rounded.is_cuda else rounded.to(self.exact)

    def logits(self, hidden_CH: Tensor, head_VH: Tensor) -> Tensor:
        """z of a chunk, [C, V], from `factor`s."""
        z_CV = self._product(hidden_CH, head_VH.T)
        if self.cap is not None:
            z_CV.div_(self.cap).tanh_().mul_(self.cap)
        return z_CV.div_(self.temperature)

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        # Summed in `exact` and of this type: logits rounded to bf16 are off by up to 0.06 at a size of 20.
        if a.dtype != self.exact:
            return torch.mm(a, b, out_dtype=self.exact)
        with bf16_factors(self.product == torch.bfloat16):
            return a @ b

    def chunks(self, count: int, others: int) -> Iterator[slice]:
        size = tokens_of_chunk(others, self.chunk_mib)
        return (slice(start, min(start + size, count)) for start in range(0, count, size))


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_TH: Tensor, head_VH: Tensor, targets_T: Tensor, how: _How) -> tuple[Tensor, Tensor]:
        # Chunks of tokens: a chunk has all its words, so its log-sum-exp is known at once. Kept for the backward pass
        # are two numbers a token, the log-sum-exp and the entropy; the logits are computed again there.
        logp_T, entropy_T, norm_T = (hidden_TH.new_empty(len(targets_T), dtype=how.exact) for _ in range(3))
        with torch.autocast(hidden_TH.device.type, enabled=False):
            hidden, head = how.factor(hidden_TH), how.factor(head_VH)
            for chunk in how.chunks(len(targets_T), len(head)):
                z_CV = how.logits(hidden[chunk], head)
                norm_T[chunk] = z_CV.logsumexp(-1)
                z_CV.sub_(norm_T[chunk, None])
                logp_T[chunk] = z_CV.gather(1, targets_T[chunk, None]).squeeze(1)
                entropy_T[chunk] = -torch.linalg.vecdot(z_CV.exp(), z_CV)
        ctx.how = how
        ctx.save_for_backward(hidden_TH, head_VH, targets_T, norm_T, entropy_T)
        ctx.set_materialize_grads(False)
        return logp_T, entropy_T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_logp_T: Tensor | None, g_entropy_T: Tensor | None) -> tuple[Tensor | None, ...]:
        if g_logp_T is None and g_entropy_T is None:
            return None, None, None, None
        hidden_TH, head_VH, targets_T, norm_T, entropy_T = ctx.saved_tensors
        how: _How = ctx.how
        g_scaled_T = torch.zeros_like(norm_T) if g_logp_T is None else g_logp_T / how.temperature
        g_scaled_entropy_T = None if g_entropy_T is None else g_entropy_T / how.temperature
        g_hidden_TH = torch.zeros_like(hidden_TH, dtype=how.exact) if ctx.needs_input_grad[0] else None
        g_head_VH = torch.zeros_like(head_VH) if ctx.needs_input_grad[1] else None
        # Chunks of words for all tokens: each part of the head's gradient, which is as large as the head, is written
        # once. With chunks of tokens it would be read and added to for each. The norms are known by now.
        with torch.autocast(hidden_TH.device.type, enabled=False):
            hidden, factor = hidden_TH.to(how.product), how.factor(hidden_TH)
            for words in how.chunks(len(head_VH), len(targets_T)):
                head = head_VH[words].to(how.product)
                logp_TW = how.logits(factor, how.factor(head))
                # z T / cap is the tanh, whose slope is 1 - tanh^2.
                slope_TW = None if how.cap is None else 1 - (logp_TW * (how.temperature / how.cap)).square_()
                logp_TW.sub_(norm_T[:, None])
                g_TW = _logit_gradient(logp_TW, entropy_T, g_scaled_T, g_scaled_entropy_T)
                _add_at_targets(g_TW, targets_T - words.start, g_scaled_T)
                if slope_TW is not None:
                    g_TW *= slope_TW
                g_TW = g_TW.to(how.product)
                if g_hidden_TH is not None:
                    g_hidden_TH += _gradient_product(g_TW, head, how.exact)
                if g_head_VH is not None:
                    g_head_VH[words] = _gradient_product(g_TW.T, hidden, how.exact)
        return g_hidden_TH if g_hidden_TH is None else g_hidden_TH.to(hidden_TH.dtype), g_head_VH, None, None


def _logit_gradient(logp_TW: Tensor, entropy_T: Tensor, g_logp_T: Tensor, g_entropy_T: Tensor | None) -> Tensor:
    """Gradient by logits, [T, W], without the term [j = target]. Overwrites `logp_TW`."""
    if g_entropy_T is None:  # the usual case, and one array less
        return logp_TW.exp_().mul_(-g_logp_T[:, None])
    weight_TW = (logp_TW + entropy_T[:, None]).mul_(-g_entropy_T[:, None]).sub_(g_logp_T[:, None])
    return logp_TW.exp_().mul_(weight_TW)


def _add_at_targets(g_TW: Tensor, place_T: Tensor, g_logp_T: Tensor) -> None:
    """Add the term [j = target] where the target is among these words."""
    # Every token is scattered, others with zero at a word that exists: selecting tokens by a mask would make the host
    # wait for the GPU to count them.
    words = g_TW.shape[1]
    at_T1 = place_T.clamp(0, words - 1)[:, None]
    own_T = torch.where((place_T >= 0) & (place_T < words), g_logp_T, 0)
    g_TW.scatter_(1, at_T1, g_TW.gather(1, at_T1) + own_T[:, None])


def _gradient_product(a: Tensor, b: Tensor, exact: torch.dtype) -> Tensor:
    """`a @ b` in the type `exact`; a CPU has no such product and rounds it."""
    return torch.mm(a, b, out_dtype=exact) if a.is_cuda and a.dtype != exact else a @ b


@contextmanager
def bf16_factors(known: bool = True) -> Iterator[None]:
    """Inside, a CPU may take factors of float32 products as bf16, since they are `known` to have no more digits."""
    # With bf16 instructions it then uses oneDNN's kernels; MKL's take twice as long on AMD's.
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    if known:
        matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before
