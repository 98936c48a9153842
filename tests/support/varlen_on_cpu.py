"""A CPU kernel for the operator behind PyTorch's `varlen_attn`, forward and backward, written from its definition.

    calls = register_varlen_on_cpu()        # for this process; `calls` counts both directions

With w = (left, right) a query at place i of a segment, counted from its end, sees keys from i - left to i + right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import varlen


@cache
def register_varlen_on_cpu() -> Counter[str]:
    """Returns how often each direction was called."""
    calls: Counter[str] = Counter()

    def forward(query: Tensor, key: Tensor, value: Tensor, *how: Any) -> tuple[Tensor, Tensor, Tensor]:
        calls["forward"] += 1
        starts_q, starts_k, _max_q, _max_k, _causal, scale, window, *_ = how
        _check_lengths(how)
        out_SHD = torch.empty_like(query)
        norm_HS = torch.empty(query.shape[1], len(query), dtype=torch.float32)
        for q, k, hidden in _segments(starts_q, starts_k, window):
            scores, v = _scores(query[q], key[k], scale, hidden), _heads(value[k], query.shape[1])
            norm_HS[:, q] = scores.logsumexp(-1).float()
            out_SHD[q] = (scores.softmax(-1) @ v).transpose(0, 1).to(query.dtype)
        return out_SHD, norm_HS, torch.zeros(2, dtype=torch.uint64)

    def backward(
        grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, norm_HS: Tensor, *how: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        calls["backward"] += 1
        starts_q, starts_k, _max_q, _max_k, _causal, _rng, scale, window = how
        heads, (grad_q, grad_k, grad_v) = query.shape[1], (torch.zeros_like(each) for each in (query, key, value))
        for q, k, hidden in _segments(starts_q, starts_k, window):
            own_q, own_k, v = _heads(query[q], heads), _heads(key[k], heads), _heads(value[k], heads)
            p = (_scores(query[q], key[k], scale, hidden) - norm_HS[:, q, None]).exp()
            g, delta = _heads(grad_out[q], heads), (grad_out[q] * out[q]).float().sum(-1).T[..., None]
            by_score = p * (g @ v.transpose(1, 2) - delta) * (scale or 1 / math.sqrt(query.shape[2]))
            grad_q[q] = (by_score @ own_k).transpose(0, 1).to(query.dtype)
            grad_k[k] = _summed(by_score.transpose(1, 2) @ own_q, key)
            grad_v[k] = _summed(p.transpose(1, 2) @ g, value)
        return grad_q, grad_k, grad_v

    varlen._varlen_attn.register_kernel("cpu")(forward)
    varlen._varlen_attn_backward.register_kernel("cpu")(backward)
    return calls


def _check_lengths(how: Sequence[Any]) -> None:
    """A GPU's kernel reads past the end where these are wrong."""
    for starts, longest in zip(how[:2], how[2:4], strict=True):
        assert starts.dtype == torch.int32
        assert int(starts.diff().max()) == longest


def _segments(starts_q: Tensor, starts_k: Tensor, window: Sequence[int]) -> Iterator[tuple[slice, slice, Tensor]]:
    """Each segment's queries and keys, and which of them are hidden from each other."""
    left, right = window
    for q, k in zip(pairwise(starts_q.tolist()), pairwise(starts_k.tolist()), strict=True):
        (first, end), (seen, seen_end) = q, k
        places_q = torch.arange(first - end, 0)[:, None]
        places_k = torch.arange(seen - seen_end, 0)[None]
        hidden = places_k > places_q + right if right >= 0 else torch.zeros(places_q.shape, dtype=torch.bool)
        if left >= 0:
            hidden = hidden | (places_k < places_q - left)
        yield slice(first, end), slice(seen, seen_end), hidden


def _scores(query: Tensor, key: Tensor, scale: float | None, hidden: Tensor) -> Tensor:
    q, k = _heads(query, query.shape[1]), _heads(key, query.shape[1])
    scores = q @ k.transpose(1, 2) * (scale or 1 / math.sqrt(query.shape[2]))
    return scores.masked_fill(hidden, -math.inf)


def _heads(x_LHD: Tensor, heads: int) -> Tensor:
    """[heads, L, D] in float32 or wider; a key's head is repeated for the queries that share it."""
    wide = x_LHD.to(torch.promote_types(x_LHD.dtype, torch.float32))
    return wide.transpose(0, 1).repeat_interleave(heads // x_LHD.shape[1], 0)


def _summed(x_HLD: Tensor, like_LHD: Tensor) -> Tensor:
    """[L, heads of keys, D]: summed over the queries' heads that share one."""
    heads = like_LHD.shape[1]
    return x_HLD.unflatten(0, (heads, -1)).sum(1).transpose(0, 1).to(like_LHD.dtype)
