"""CISPO (MiniMax-M1, arXiv 2506.13585): the importance weight is clipped instead of the update.

    loss = -sg(clip(r, 1 - clip_low, 1 + clip_high)) A log pi        r = pi / pi_old, sg: no gradient

Clipping never removes a token's gradient. `clip_low=1` means no lower bound.
"""

from __future__ import annotations

import torch
from pydantic import Field

from raypoly.algorithms.losses.aggregation import Aggregation
from raypoly.algorithms.losses.loss import Clipped, Loss
from raypoly.algorithms.losses.loss_config import LossConfig
from raypoly.algorithms.losses.loss_tokens import Tokens


class CISPOConfig(LossConfig):
    aggregation: Aggregation = Field("token_mean", description="As for every loss; the paper's, over all tokens.")
    clip_low: float = Field(1.0, ge=0, le=1, description="The weight is at least 1 - clip_low.")
    clip_high: float = Field(0.28, ge=0, description="The weight is at most 1 + clip_high.")


class CISPO(Loss):
    Config = CISPOConfig
    config: CISPOConfig
    takes_ratio = True

    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        weight_T = self.ratio(tokens).detach().clamp(1 - self.config.clip_low, 1 + self.config.clip_high)
        return -weight_T * tokens.advantage_T * tokens.logp_T

    @torch.no_grad()
    def clipped(self, tokens: Tokens) -> Clipped:
        """Tokens with a clipped weight, for either sign of the advantage."""
        ratio_T = self.ratio(tokens)
        return Clipped(ratio_T < 1 - self.config.clip_low, ratio_T > 1 + self.config.clip_high)
