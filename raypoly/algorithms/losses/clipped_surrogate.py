"""The clipped surrogate of PPO (arXiv 1707.06347), with separate bounds (DAPO, arXiv 2503.14476) and dual clip.

    r = pi / pi_old        loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)
    for A < 0              loss = min(loss, -dual_clip A)        (arXiv 1912.09729)

Without the last line the loss of a token with A < 0 and a large r has no bound.
"""

from __future__ import annotations

import torch
from pydantic import Field

from raypoly.algorithms.losses.loss import Clipped, Loss
from raypoly.algorithms.losses.loss_config import LossConfig
from raypoly.algorithms.losses.loss_tokens import Tokens


def surrogate(ratio_T: torch.Tensor, advantage_T: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """-min(r A, clip(r, 1 - low, 1 + high) A), [T], of token or sequence ratios. A bound only limits gains."""
    bounded_T = ratio_T.clamp(1 - low, 1 + high)
    return -torch.minimum(ratio_T * advantage_T, bounded_T * advantage_T)


@torch.no_grad()
def surrogate_clipped(ratio_T: torch.Tensor, advantage_T: torch.Tensor, low: float, high: float) -> Clipped:
    """The tokens whose `surrogate` is at a bound."""
    return Clipped((advantage_T < 0) & (ratio_T < 1 - low), (advantage_T > 0) & (ratio_T > 1 + high))


class ClippedSurrogateConfig(LossConfig):
    clip_low: float = Field(0.2, ge=0, le=1, description="A ratio below 1 - clip_low gains nothing more.")
    clip_high: float = Field(0.28, ge=0, description="A ratio above 1 + clip_high gains nothing more.")
    dual_clip: float | None = Field(
        3.0, gt=1, description="Where the advantage is negative, a ratio above this loses nothing more; null: no bound."
    )


class ClippedSurrogate(Loss):
    Config = ClippedSurrogateConfig
    config: ClippedSurrogateConfig
    takes_ratio = True

    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        config, advantage_T = self.config, tokens.advantage_T
        losses_T = surrogate(self.ratio(tokens), advantage_T, config.clip_low, config.clip_high)
        if config.dual_clip is None:
            return losses_T
        return torch.where(advantage_T < 0, torch.minimum(losses_T, -config.dual_clip * advantage_T), losses_T)

    @torch.no_grad()
    def clipped(self, tokens: Tokens) -> Clipped:
        """Tokens at the dual clip count as high."""
        config, ratio_T, advantage_T = self.config, self.ratio(tokens), tokens.advantage_T
        low_T, high_T = surrogate_clipped(ratio_T, advantage_T, config.clip_low, config.clip_high)
        if config.dual_clip is not None:
            high_T = high_T | ((advantage_T < 0) & (ratio_T > config.dual_clip))
        return Clipped(low_T, high_T)
