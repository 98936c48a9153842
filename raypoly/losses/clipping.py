"""The clipped surrogate of a ratio, of tokens or of sequences: -min(r A, clip(r, 1 - low, 1 + high) A)."""

from __future__ import annotations

import torch

from raypoly.losses.loss import Clipped


def surrogate(ratio_T: torch.Tensor, advantage_T: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Losses, [T]: pessimistic, so a ratio is bounded only where that takes a gain away."""
    bounded_T = ratio_T.clamp(1 - low, 1 + high)
    return -torch.minimum(ratio_T * advantage_T, bounded_T * advantage_T)


@torch.no_grad()
def sides(ratio_T: torch.Tensor, advantage_T: torch.Tensor, low: float, high: float) -> Clipped:
    """Where the bound decided."""
    return Clipped((advantage_T < 0) & (ratio_T < 1 - low), (advantage_T > 0) & (ratio_T > 1 + high))
