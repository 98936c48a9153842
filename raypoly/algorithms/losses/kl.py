"""Per-token estimators of KL(pi || ref) as loss terms (J. Schulman, "Approximating KL Divergence", 2020).

With d = log pi - log ref of a token that was drawn from pi:

    k1   d                     unbiased, may be negative
    k2   d^2 / 2               biased; its gradient d * grad log pi is, in expectation, the KL's
    k3   exp(-d) - 1 + d       unbiased, never negative; its gradient is, in expectation, that of KL(ref || pi)

The gradient of k1 itself is grad log pi, which is zero in expectation and so only noise. Here k1 has its value and the
gradient of k2. All are of a token given those before it, and ignore its effect on later tokens, as every per-token KL
term does.
"""

from __future__ import annotations

import torch

from raypoly.algorithms.losses.loss_config import Estimator
from raypoly.algorithms.losses.loss_tokens import MAX_LOG_RATIO


def kl_terms(logp_T: torch.Tensor, reference_logp_T: torch.Tensor, estimator: Estimator) -> torch.Tensor:
    """The estimate at each token, [T], with its gradient; d is clamped to +-20."""
    d_T = (logp_T - reference_logp_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if estimator == "k3":
        return torch.expm1(-d_T) + d_T
    half_square_T = d_T.square() / 2
    if estimator == "k2":
        return half_square_T
    return d_T.detach() + half_square_T - half_square_T.detach()
