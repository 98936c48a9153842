"""Attention among the tokens of each row of a packed batch, for transformers models as they are.

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=PACKED)
    model.base_model(ids_1S, position_ids=positions_1S, segments=Segments.of([12, 30]), use_cache=False)

Rows lie one behind the other in [1, S] and each is causal within itself. On CUDA in bf16 that is one call of the flash
kernel for variable lengths that PyTorch brings along. Elsewhere each row is attended to by itself: on a CPU a fifth
faster, for the whole model, than rows padded to one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from raypoly.errors import UsageError

PACKED = "raypoly_packed"
"""The name under which transformers finds `attend`."""


@dataclass(frozen=True)
class Segments:
    """Where the rows of a packed batch lie."""

    lengths: tuple[int, ...]
    starts: Tensor
    """int32 [B + 1]: where each row starts, and the end."""

    @classmethod
    def of(cls, lengths: Sequence[int]) -> Segments:
        """Rows of these lengths, one behind the other."""
        starts = torch.zeros(len(lengths) + 1, dtype=torch.int32)
        starts[1:] = torch.tensor(lengths).cumsum(0)
        return cls(tuple(lengths), starts)

    def to(self, device: torch.device) -> Segments:
        return replace(self, starts=self.starts.to(device))


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    segments: Segments | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention as transformers calls it: [1, heads, S, head size] to [1, S, heads, head size].

    Key and value may have fewer heads. Raises `UsageError` for a layer that sees a window only.
    """
    if segments is None or attention_mask is not None:
        raise ValueError("packed attention takes segments, and no mask")
    if sliding_window is not None:
        raise UsageError("The learner has no sliding-window attention: use a model whose layers all see the whole row.")
    if value.is_cuda and value.dtype in (torch.bfloat16, torch.float16):
        # Rotary embeddings and norms leave queries and keys in float32 under autocast.
        query_SHD, key_SHD, value_SHD = (x[0].transpose(0, 1).to(value.dtype) for x in (query, key, value))
        longest, starts = max(segments.lengths), segments.starts
        out_SHD: Tensor = varlen_attn(  # type: ignore[assignment]
            query_SHD,
            key_SHD,
            value_SHD,
            starts,
            starts,
            longest,
            longest,
            scale=scaling,
            window_size=(-1, 0),
            enable_gqa=True,
        )
        return out_SHD[None], None
    lengths = list(segments.lengths)
    rows = zip(*(torch.split(x.to(value.dtype), lengths, dim=2) for x in (query, key, value)), strict=True)
    outs = [
        scaled_dot_product_attention(query_row, key_row, value_row, is_causal=True, scale=scaling, enable_gqa=True)
        for query_row, key_row, value_row in rows
    ]
    return torch.cat(outs, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(PACKED, attend)
