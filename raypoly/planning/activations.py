"""What a forward pass keeps for its backward pass, in bytes a token, by `train.activation_checkpointing`.

With H the width of the residual stream (float32, 4 bytes), A and K those of all queries and of all keys, I the MLP's,
and w the bytes of a product's factor (2 under autocast to bfloat16, 4 without), a layer of Qwen2, Qwen3 or Llama keeps

    two norms            their input and what they divided, in float32          2 x 8 H
    inputs of products   q, k, v, gate and up: autocast rounds one each, 5 w H; in float32 two, shared, 2 w H
    norms of q and k     (Qwen3) what comes in as float32, and normalised at w   (4 + w) (A + K)
    attention            q, k, v as they enter, and what comes out               2 w (A + K)
    MLP                  gate, its activation, up, and their product             4 w I

On a CPU, whose kernel takes neither grouped heads nor segments: keys and values repeated for all heads, the output
twice, and a mask as wide as the longest row, w (2 (A - K) + A + longest).

`products` keeps a layer's input, 4 H, and what the seven products and attention gave, w (2 A + 2 K + 2 H + 2 I);
`layers` its input alone. Both compute one layer at a time again, and hold all of the above for that one.

Compiled (`train.compile`), a layer keeps its input and its middle, 8 H, q and k before their norms (Qwen3), w (A + K),
what enters attention and comes out, 2 w (A + K), the two results that are added to the stream, 2 w H, gate and up,
2 w I; without `products` also what is multiplied, w (2 H + I).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raypoly.planning.model_shape import ModelShape

Recomputing = Literal["off", "products", "layers"]


@dataclass(frozen=True)
class Activations:
    """Bytes a token of a micro-batch."""

    shape: ModelShape
    bf16: bool
    kind: Recomputing
    cpu_longest: int | None = None
    """Tokens of the longest row where it runs on a CPU; None on a GPU."""
    compiled: bool = False

    @property
    def layer(self) -> int:
        """Of one layer of which nothing is computed again."""
        H, A, K, w = self.shape.hidden, self.shape.queries, self.shape.keys, width(self.bf16)
        norms = 16 * H
        inputs = (5 if self.bf16 else 2) * w * H
        head_norms = (4 + w) * (A + K) if self.shape.head_norm else 0
        return norms + inputs + head_norms + self._attention + 4 * w * self.shape.intermediate

    @property
    def _attention(self) -> int:
        A, K, w = self.shape.queries, self.shape.keys, width(self.bf16)
        more = 0 if self.cpu_longest is None else w * (2 * (A - K) + A + self.cpu_longest)
        return 2 * w * (A + K) + more

    @property
    def kept(self) -> int:
        """Of all layers, while the backward pass has not begun."""
        shape, w = self.shape, width(self.bf16)
        if self.compiled and self.kind != "layers":
            return shape.layers * self._compiled_layer(self.kind)
        if self.kind == "off":
            return shape.layers * self.layer
        products = 2 * w * (shape.queries + shape.keys + shape.hidden + shape.intermediate)
        return shape.layers * (4 * shape.hidden + (products if self.kind == "products" else 0))

    def _compiled_layer(self, kind: Recomputing) -> int:
        """What one keeps."""
        H, w = self.shape.hidden, width(self.bf16)
        head_norms = w * (self.shape.queries + self.shape.keys) if self.shape.head_norm else 0
        multiplied = 0 if kind == "products" else self._multiplied
        return 8 * H + head_norms + self._attention + 2 * w * (H + self.shape.intermediate) + multiplied

    @property
    def _multiplied(self) -> int:
        return width(self.bf16) * (2 * self.shape.hidden + self.shape.intermediate)

    @property
    def at_the_head(self) -> int:
        """For a moment beside them, while logits exist: the last norm, the head's input, and their gradients."""
        return 20 * self.shape.hidden

    @property
    def at_a_layer(self) -> int:
        """For a moment beside them: what of a layer is computed again, and the gradients within it, two as wide as the
        MLP and two as the stream."""
        w, intermediate = width(self.bf16), self.shape.intermediate
        again = {"off": 0, "products": self.layer - w * (2 * intermediate + self.shape.queries), "layers": self.layer}
        if self.compiled:
            whole = self._compiled_layer("off") - 4 * self.shape.hidden
            again = {"off": 0, "products": self._multiplied, "layers": whole}
        return again[self.kind] + 2 * w * intermediate + 8 * self.shape.hidden


def width(bf16: bool) -> int:
    """Bytes of a product's factor."""
    return 2 if bf16 else 4
