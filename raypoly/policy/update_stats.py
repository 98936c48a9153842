"""What the learner tells of a step; apart from the learner, so that a driver needs no model library to read it."""

from __future__ import annotations

from dataclasses import dataclass

from raypoly.losses.loss_stats import LossStats


@dataclass(frozen=True)
class UpdateStats:
    """What one training step was made of: one optimizer update, or one a mini-batch."""

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
    """Mean over the trained response tokens, nats; NaN where none was trained."""
    rows: int
    """Responses with a gradient."""
    tokens: int
    """Response tokens with a gradient."""
    measured: LossStats
