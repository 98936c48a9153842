"""Attention within the segments of a packed batch, for transformers models as they are.

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=PACKED)
    segments = Segments.of([12, 30, 25], prompts=[None, 0, 0])       # a prompt and two responses to it
    model.base_model(ids_1S, position_ids=positions_1S, segments=segments, use_cache=False)

Segments follow each other in [1, S]. Each is causal within itself; a response also sees all of its prompt, which is
stored once for all responses. With a sliding window of W a token sees itself and the W - 1 tokens before it, of its
prompt and its response.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from raypoly.core.errors import UsageError
from raypoly.learner.packing import Segments

PACKED = "raypoly_packed"
"""The name under which transformers finds `attend` (`raypoly.learner.policy_model` registers it)."""
# Several heads share a key. PyTorch 2.11 does so without the argument.
_GROUPED: Mapping[str, Any] = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
_WIDEST = 256  # the largest head of the flash kernel
FLASH_DEVICES = ("cuda",)


class ScoresChanged(UsageError):
    """Attention scores with a cap or sinks, which packed attention and PyTorch's own leave out."""


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    segments: Segments | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention as transformers calls it: [1, heads, S, head size] to [1, S, heads, head size].

    Key and value may have fewer heads. Raises `ScoresChanged` for a cap on scores (`softcap`) or sinks (`s_aux`).
    """
    if segments is None or attention_mask is not None:
        raise ValueError("packed attention takes segments, and no mask")
    if softcap is not None or s_aux is not None:
        raise ScoresChanged("Packed attention has neither a cap on scores nor sinks.")
    # Rotary embeddings and norms leave queries and keys in float32 under autocast.
    query, key = query.to(value.dtype), key.to(value.dtype)
    flash = has_flash(value.device, value.dtype, query.shape[-1])
    return (_flash if flash else _by_segment)(query, key, value, segments, scaling, sliding_window), None


def has_flash(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether the flash kernel computes it: one call, which torch.compile can trace."""
    return device.type in FLASH_DEVICES and dtype in (torch.bfloat16, torch.float16) and head_size <= _WIDEST


def _flash(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scaling: float | None, window: int | None
) -> Tensor:
    # One call for all segments. The kernel aligns queries and keys at their ends, so its causal mask lets a response
    # see all of its prompt. The prompt's keys are copied for each of its responses (`seen`), since the kernel reads
    # each segment's keys from one stretch of memory.
    query_SHD = query[0].transpose(0, 1)
    key_SHD, value_SHD = (x[0].transpose(0, 1).index_select(0, segments.seen) for x in (key, value))
    out_SHD = varlen_attn(
        query_SHD,
        key_SHD,
        value_SHD,
        segments.starts,
        segments.seen_starts,
        segments.longest,
        segments.longest_seen,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),
        **_GROUPED,
    )
    assert isinstance(out_SHD, Tensor)
    return out_SHD[None]


def _by_segment(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scaling: float | None, window: int | None
) -> Tensor:
    # A call for each segment: on a CPU that is faster than padding to one length.
    lengths = list(segments.lengths)
    queries, keys, values = (torch.split(x, lengths, dim=2) for x in (query, key, value))
    outs = []
    for own, prompt in enumerate(segments.prompts):
        k, v, mask, before = keys[own], values[own], None, 0
        if prompt is not None:
            before = lengths[prompt]
            k, v = torch.cat([keys[prompt], k], dim=2), torch.cat([values[prompt], v], dim=2)
        narrow = window is not None and window < k.shape[2]
        # Without prompt and window the mask is a plain triangle, which the kernel makes itself (`is_causal`).
        if prompt is not None or narrow:
            mask = torch.ones(lengths[own], k.shape[2], dtype=torch.bool, device=k.device).tril(before)
        if mask is not None and window is not None and narrow:
            mask = mask.triu(before - window + 1)
        outs.append(
            scaled_dot_product_attention(
                queries[own], k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=True
            )
        )
    return torch.cat(outs, dim=2).transpose(1, 2).contiguous()
