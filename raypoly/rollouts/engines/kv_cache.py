"""The key-value cache of decoding with transformers, and faster attention to it on a CPU, with the same bits.

decode_as_sdpa(model)
model(ids, past_key_values=growing_cache(model, most=len(prompt) + max_tokens))
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from raypoly.core.errors import UsageError

DECODING = "raypoly_decoding"
_ROOM = 32  # tokens by which a full layer grows, at least, within its limit


def decode_as_sdpa(model: PreTrainedModel) -> None:
    """Make a model that uses torch's attention (sdpa) use `attend` while it decodes. One with a cap on scores, which
    that leaves out, gets transformers' own."""
    if getattr(model.config.get_text_config(), "attn_logit_softcapping", None) is not None:
        model.set_attn_implementation("eager")
    elif model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(DECODING)


def growing_cache(model: PreTrainedModel, most: int) -> Cache:
    """An empty cache for `most` tokens a row, or more on demand. Raises `UsageError` for layers of other kinds."""
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    unknown = kinds - {DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer}
    if unknown:
        names = ", ".join(sorted(kind.__name__ for kind in unknown))
        raise UsageError(
            f"generator.engine=transformers has no cache for layers of this model ({type(model).__name__}: {names}): "
            "set generator.engine=vllm."
        )
    if LinearAttentionLayer not in kinds:
        return Cache(layer_class_to_replicate=partial(GrowingLayer, most))
    layers = DynamicCache(config=model.config).layers
    return Cache([StateLayer() if isinstance(layer, LinearAttentionLayer) else GrowingLayer(most) for layer in layers])


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention, [B, heads, Q, head size] to [B, Q, heads, head size]; keys have L tokens."""
    if query.shape[2] > 1 or query.is_cuda or position_bias is not None:
        others |= {"dropout": dropout, "scaling": scaling, "position_bias": position_bias}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)[0], None
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None


# transformers copies the whole cache for every token: to append to it, and again for each head if heads share a key. On
# a CPU that is a third of a small model's time. A layer with a sliding window keeps all keys, and a mask hides the old
# ones; a layer of linear attention has a state of fixed size.
class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of a layer, [B, heads, L, head size], with room for further tokens."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.keys: Tensor = key_states[:, :, :0]
        self.values: Tensor = value_states[:, :, :0]
        self._rooms = self.keys, self.values

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """All keys and values, with T new ones, [B, heads, T, head size]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        after = before + key_states.shape[2]
        if after > self._rooms[0].shape[2]:
            self._rooms = self._with_room(self.keys, after), self._with_room(self.values, after)
        keys, values = self._rooms
        keys[:, :, before:after], values[:, :, before:after] = key_states, value_states
        self.keys, self.values = keys[:, :, :after], values[:, :, :after]
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows."""
        self._rooms = self._rooms[0][indices], self._rooms[1][indices]
        length = self.get_seq_length()
        self.keys, self.values = self._rooms[0][:, :, :length], self._rooms[1][:, :, :length]

    def _with_room(self, states: Tensor, least: int) -> Tensor:
        rows, heads, length, size = states.shape
        wanted = max(least + _ROOM, 2 * length)  # doubling: a token is copied once in the mean
        room = states.new_empty(rows, heads, max(least, min(wanted, self._most)), size)
        room[:, :, :length] = states
        return room


class StateLayer(LinearAttentionLayer):  # type: ignore[misc]
    """State of a layer of linear attention."""

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows."""
        self.reorder_cache(indices)


AttentionInterface.register(DECODING, attend)
AttentionMaskInterface.register(DECODING, sdpa_mask)
