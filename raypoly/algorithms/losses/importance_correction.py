"""Off-policy correction by importance sampling, for a sampler that differs from the policy in training.

They differ by rounding (bf16, other kernels) and by staleness (later mini-batches of a step, a replayed step,
`train.ahead`). With the importance ratio w = pi_learner / pi_sampler, a constant for the gradient:

    truncated importance sampling    token losses times min(w, importance_cap)
    masking                          token losses times 1[mask_low <= w <= mask_high]

On the level of sequences a weight is the product over the response: exact, with more variance. A mask uses the
geometric mean, which does not grow with length. A cap at `mask_high` gives IcePop: the ratio inside the bounds, nothing
outside. (Truncation: Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL
Training", 2025.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from raypoly.algorithms.losses.loss_config import LossConfig
from raypoly.algorithms.losses.loss_tokens import Tokens, ratio_of


@dataclass(frozen=True)
class Correction:
    """A config's weights and masks of the learner/sampler ratios, without gradient."""

    ratio_T: torch.Tensor
    """[T]: w by `importance_level`, before truncation."""
    truncated_T: torch.Tensor | None
    """bool [T]: tokens with w above the cap; None without a cap."""
    masked_T: torch.Tensor | None
    """bool [T]: masked tokens; None without mask bounds."""
    weight_T: torch.Tensor | None
    """[T]: factor of the token losses; None for 1."""


@torch.no_grad()
def correction(tokens: Tokens, config: LossConfig) -> Correction:
    """Weights and masks of these tokens."""
    log_ratio_T = tokens.logp_T.detach() - tokens.sampler_logp_T
    whole = config.importance_level == "sequence"
    ratio_T = ratio_of(tokens.response_sum(log_ratio_T) if whole else log_ratio_T)
    cap, masked_T = config.importance_cap, _masked(tokens, log_ratio_T, config)
    weight_T = None if cap is None else ratio_T.clamp(max=cap)
    if masked_T is not None:
        kept_T = (~masked_T).to(log_ratio_T.dtype)
        weight_T = kept_T if weight_T is None else weight_T * kept_T
    return Correction(ratio_T, None if cap is None else ratio_T > cap, masked_T, weight_T)


def _masked(tokens: Tokens, log_ratio_T: torch.Tensor, config: LossConfig) -> torch.Tensor | None:
    if config.mask_low is None and config.mask_high is None:
        return None
    ratio_T = ratio_of(tokens.response_mean(log_ratio_T) if config.mask_level == "sequence" else log_ratio_T)
    low = 0.0 if config.mask_low is None else config.mask_low
    high = float("inf") if config.mask_high is None else config.mask_high
    return (ratio_T < low) | (ratio_T > high)
