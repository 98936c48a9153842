"""Log-probabilities and entropies of chosen tokens, with gradients, without an array of [tokens, vocabulary].

    logp_T, entropy_T = token_logprobs(hidden_TH, model.lm_head.weight, targets_T, temperature=1.0)

Logits exist for one chunk of tokens at a time. The forward pass keeps two numbers for each token. The backward pass
recomputes a chunk's logits (not the model's body) and adds its part of the gradients.

With z = head @ hidden / temperature and p = softmax(z):

    logp = z[target] - logsumexp(z)       d logp / dz_j    = [j = target] - p_j
    entropy = -sum_j p_j log p_j          d entropy / dz_j = -p_j (log p_j + entropy)

Where a model caps its logits x = head @ hidden (Gemma), z = cap tanh(x / cap) / temperature and
dz / dx = (1 - tanh^2) / temperature.

PyTorch's own `linear_cross_entropy` gives the first line only, so it can't train an entropy or a KL term.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MIB = 1 << 20
CHUNK_MIB = 512
"""Memory of a chunk's float32 logits. A pass holds up to three such arrays, four with a cap on logits. Much smaller
chunks are slow on a GPU, which adds the head's gradient, as large as the head, for each chunk."""
_TILE = 128
"""Larger chunks are multiples of this, for the matrix units."""


def token_logprobs(
    hidden_TH: Tensor,
    head_VH: Tensor,
    targets_T: Tensor,
    temperature: float,
    chunk_mib: int = CHUNK_MIB,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy (nats) of each target, [T] each, both differentiable in `hidden_TH` and `head_VH`.

    Matrices are multiplied in autocast's type if it is on; softmax, sums and both results are in float32, or in
    float64 for float64 input. `chunk_mib` bounds the memory of the logits that exist at one time; `cap` is the model's
    soft cap on logits.
    """
    device = hidden_TH.device.type
    how = _How(
        temperature=temperature,
        tokens=tokens_of_chunk(head_VH.shape[0], chunk_mib),
        product=torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_TH.dtype,
        exact=torch.float64 if hidden_TH.dtype == torch.float64 else torch.float32,
        cap=cap,
    )
    logp_T, entropy_T = _TokenLogprobs.apply(hidden_TH, head_VH, targets_T, how)  # type: ignore[no-untyped-call]
    return logp_T, entropy_T


def tokens_of_chunk(vocabulary: int, chunk_mib: int) -> int:
    """The number of tokens whose float32 logits fit into `chunk_mib`; at least one."""
    tokens = max(1, chunk_mib * MIB // (4 * vocabulary))
    return tokens - tokens % _TILE if tokens > _TILE else tokens


@dataclass(frozen=True)
class _How:
    temperature: float
    tokens: int
    """Of a chunk."""
    product: torch.dtype
    """Of the factors of matrix products."""
    exact: torch.dtype
    """Of everything else."""
    cap: float | None
    """Of logits, before the temperature."""

    def logits(self, hidden_CH: Tensor, head_VH: Tensor) -> Tensor:
        """z of a chunk, [C, V]."""
        z_CV = _product(hidden_CH, head_VH.T, self.exact)
        if self.cap is not None:
            z_CV.div_(self.cap).tanh_().mul_(self.cap)
        return z_CV.div_(self.temperature)

    def chunks(self, tokens: int) -> Iterator[slice]:
        return (slice(start, start + self.tokens) for start in range(0, tokens, self.tokens))


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_TH: Tensor, head_VH: Tensor, targets_T: Tensor, how: _How) -> tuple[Tensor, Tensor]:
        logp_T, entropy_T, norm_T = (hidden_TH.new_empty(len(targets_T), dtype=how.exact) for _ in range(3))
        with torch.autocast(hidden_TH.device.type, enabled=False):
            head = head_VH.to(how.product)
            for chunk in how.chunks(len(targets_T)):
                z_CV = how.logits(hidden_TH[chunk].to(how.product), head)
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
        g_hidden_TH = torch.empty_like(hidden_TH) if ctx.needs_input_grad[0] else None
        g_head_VH = torch.zeros_like(head_VH) if ctx.needs_input_grad[1] else None
        with torch.autocast(hidden_TH.device.type, enabled=False):
            head = head_VH.to(how.product)
            for chunk in how.chunks(len(targets_T)):
                hidden = hidden_TH[chunk].to(how.product)
                logp_CV = how.logits(hidden, head)
                slope_CV = None if how.cap is None else 1 - (logp_CV * (how.temperature / how.cap)).square_()
                logp_CV.sub_(norm_T[chunk, None])
                g_entropy_C = None if g_entropy_T is None else g_entropy_T[chunk] / how.temperature
                g_CV = _logit_gradient(logp_CV, targets_T[chunk], entropy_T[chunk], g_scaled_T[chunk], g_entropy_C)
                if slope_CV is not None:
                    g_CV *= slope_CV
                g_CV = g_CV.to(how.product)
                if g_hidden_TH is not None:
                    g_hidden_TH[chunk] = g_CV @ head
                if g_head_VH is not None:
                    g_head_VH += g_CV.T @ hidden
        return g_hidden_TH, g_head_VH, None, None


def _logit_gradient(
    logp_CV: Tensor, targets_C: Tensor, entropy_C: Tensor, g_logp_C: Tensor, g_entropy_C: Tensor | None
) -> Tensor:
    """The gradient by logits, [C, V], from gradients divided by the temperature. It overwrites `logp_CV`."""
    if g_entropy_C is None:  # the usual case, and one array less
        g_CV = logp_CV.exp_().mul_(-g_logp_C[:, None])
    else:
        weight_CV = (logp_CV + entropy_C[:, None]).mul_(-g_entropy_C[:, None]).sub_(g_logp_C[:, None])
        g_CV = logp_CV.exp_().mul_(weight_CV)
    g_CV[torch.arange(len(targets_C), device=targets_C.device), targets_C] += g_logp_C
    return g_CV


def _product(a: Tensor, b: Tensor, exact: torch.dtype) -> Tensor:
    """`a @ b` in the type `exact`, summed in it too: logits rounded to bf16 are off by up to 0.06 at a size of 20."""
    if a.dtype == exact:
        return a @ b
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=exact)
    return a.to(exact) @ b.to(exact)  # the CPU has no such product
