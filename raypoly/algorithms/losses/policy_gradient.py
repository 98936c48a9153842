"""The on-policy policy gradient: -A * log pi, equation 4 of the Poly-EPO code study.

With `importance_cap` each token has the weight min(pi_learner / pi_sampler, cap), detached: truncated importance
sampling, for engines whose numerics differ from the learner's (bf16). In fp32 on a CPU the ratio is 1 to 1e-5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raypoly.algorithms.losses.loss import Loss
from raypoly.algorithms.losses.loss_tokens import Tokens

if TYPE_CHECKING:
    import torch


class PolicyGradient(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * tokens.logp_T
