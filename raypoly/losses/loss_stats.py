"""What a step's tokens say of its loss, in numbers; `raypoly.losses.loss_sums` has the formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LossStats:
    """Over the trained response tokens of one step; NaN where none was trained or the loss has no such thing."""

    mismatch_max: float = math.nan
    """Largest |log w|, not clamped."""
    mismatch_mean: float = math.nan
    """Mean |log w|, not clamped."""
    mismatch_k1: float = math.nan
    mismatch_k3: float = math.nan
    importance_mean: float = math.nan
    """Mean w before truncation, on the level of `importance_level`."""
    importance_ess: float = math.nan
    """Effective sample size as a share of the tokens, of the same w."""
    importance_truncated: float = math.nan
    """Share of tokens whose w was cut by `importance_cap`."""
    tokens_masked: float = math.nan
    """Share of tokens that `mask_low` and `mask_high` left out."""
    ratio_clipped_low: float = math.nan
    ratio_clipped_high: float = math.nan
    """Share of tokens whose loss was decided by a bound of the ratio."""
    kl_reference: float = math.nan
    """KL to the frozen starting model, by k3, nats a token."""
