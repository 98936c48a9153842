"""Group sequence policy optimization (arXiv 2507.18071): the clipped surrogate of one ratio for a whole response.

    s = (pi(y) / pi_old(y))^(1/|y|) = exp(mean over tokens of log pi - log pi_old)
    loss = -min(s_t A, clip(s_t, 1 - clip_low, 1 + clip_high) A)        s_t = sg(s) pi_t / sg(pi_t)

At each token s_t has the value of s and the token's share of the gradient. Summed over a response the gradient is that
of s A (the paper's GSPO-token), and weights and masks act on each token's share. s is a geometric mean, so its bounds
are a thousand times narrower than a token's.
"""

from __future__ import annotations

import torch
from pydantic import Field

from raypoly.algorithms.losses.aggregation import Aggregation
from raypoly.algorithms.losses.clipped_surrogate import surrogate, surrogate_clipped
from raypoly.algorithms.losses.loss import Clipped, Loss
from raypoly.algorithms.losses.loss_config import LossConfig
from raypoly.algorithms.losses.loss_tokens import Tokens, ratio_of


class GSPOConfig(LossConfig):
    aggregation: Aggregation = Field(
        "seq_mean_token_mean", description="As for every loss; the paper's, where each response counts the same."
    )
    clip_low: float = Field(3e-4, ge=0, le=1, description="A response's ratio below 1 - clip_low gains nothing more.")
    clip_high: float = Field(4e-4, ge=0, description="A response's ratio above 1 + clip_high gains nothing more.")


class GSPO(Loss):
    Config = GSPOConfig
    config: GSPOConfig
    takes_ratio = True

    def sequence_ratio(self, tokens: Tokens) -> torch.Tensor:
        """s_t, [T]: the response's ratio at each token, with the token's own gradient."""
        ratio_T = ratio_of(tokens.response_mean(self.log_ratio(tokens).detach()))
        return ratio_T * (tokens.logp_T - tokens.logp_T.detach()).exp()

    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        ratio_T = self.sequence_ratio(tokens)
        return surrogate(ratio_T, tokens.advantage_T, self.config.clip_low, self.config.clip_high)

    @torch.no_grad()
    def clipped(self, tokens: Tokens) -> Clipped:
        ratio_T = self.sequence_ratio(tokens)
        return surrogate_clipped(ratio_T, tokens.advantage_T, self.config.clip_low, self.config.clip_high)
