"""Statistics of a training step. No torch here, since the driver reads them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LossStats:
    """Over a step's trained response tokens; NaN without tokens, or if the loss has no such term.

    `raypoly.learner.loss_sums` has the formulas; w is pi_learner / pi_sampler.
    """

    mismatch_max: float = math.nan
    """Largest |log w|, not clamped."""
    mismatch_mean: float = math.nan
    """Mean |log w|, not clamped."""
    mismatch_k1: float = math.nan
    mismatch_k3: float = math.nan
    importance_mean: float = math.nan
    """Mean w before truncation, on the level of `importance_level`."""
    importance_ess: float = math.nan
    """Effective sample size of these w, as a share of the tokens."""
    importance_truncated: float = math.nan
    """Share of tokens cut by `importance_cap`."""
    tokens_masked: float = math.nan
    """Share of tokens left out by `mask_low` and `mask_high`."""
    ratio_clipped_low: float = math.nan
    ratio_clipped_high: float = math.nan
    """Share of tokens whose loss is at a bound of the ratio."""
    kl_reference: float = math.nan
    """KL to the frozen reference model, by k3, nats a token."""


@dataclass(frozen=True)
class UpdateStats:
    """One training step: one optimizer update for each mini-batch."""

    version: int
    """Of the weights after the step."""
    weight_digest: str
    loss: float
    """Mean over updates."""
    grad_norm: float
    """Before clipping, mean over updates."""
    clipped: bool
    """In any update."""
    entropy: float
    """Mean over the trained response tokens, nats; NaN without any."""
    rows: int
    """Responses with a gradient."""
    tokens: int
    """Response tokens with a gradient."""
    measured: LossStats
    lr: float
    update_norm: float = math.nan
    """Of the change of the weights, |theta' - theta|, mean over updates."""
