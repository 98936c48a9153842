"""The contract of a loss: one number for each token, from log-probabilities and advantages.

    total = weight * (token_losses + kl_coefficient * KL - entropy_coefficient * entropy)

A subclass writes `token_losses`. The KL to the reference model, the entropy bonus and the off-policy correction
(`weight`: raypoly/algorithms/losses/importance_correction.py) are the same for every loss. A loss may have a head that
is trained with the policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from raypoly.algorithms.losses.loss_config import Estimator, LossConfig
from raypoly.algorithms.losses.loss_tokens import MAX_LOG_RATIO, Tokens, ratio_of

if TYPE_CHECKING:  # the driver only reads its loss's attributes
    import torch

Need = Literal["reference", "entropy", "prompt_hidden"]
"""`reference`: the reference model's log-probabilities. `entropy`: the gradient of the entropy.
`prompt_hidden`: the last hidden states of prompts."""


class Clipped(NamedTuple):
    """Tokens whose loss is at the lower or the upper bound of the ratio; bool [T] each."""

    low_T: torch.Tensor
    high_T: torch.Tensor


class Loss(ABC):
    """One way to combine advantages with log-probabilities. Subclasses write `token_losses`."""

    Config: ClassVar[type[LossConfig]] = LossConfig
    takes_ratio: ClassVar[bool] = False
    """Whether `token_losses` weighs tokens by `ratio`, which is an off-policy correction."""
    fits_advantages: ClassVar[bool] = False
    """Whether advantages are targets, so that responses with advantage zero are trained on too."""

    def __init__(self, config: LossConfig) -> None:
        self.config = config

    @abstractmethod
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        """The policy's losses, [T], with the gradient through `tokens.logp_T`."""

    def head(self, hidden_size: int) -> torch.nn.Module | None:
        """A module that is trained, clipped and checkpointed with the policy; None for a loss without one.

        It maps `tokens.prompt_hidden_SH` (H is `hidden_size`), which `needs` must name, to `tokens.head_S`.
        """
        return None

    @property
    def head_lr(self) -> float | None:
        """The head's learning rate; None for the policy's."""
        return None

    def clipped(self, tokens: Tokens) -> Clipped | None:
        """The clipped tokens; None for a loss without bounds on the ratio."""
        return None

    @property
    def needs(self) -> frozenset[Need]:
        """The optional fields of `tokens` that this loss reads."""
        reference: frozenset[Need] = frozenset({"reference"} if self.config.kl_coefficient else ())
        entropy: frozenset[Need] = frozenset({"entropy"} if self.config.entropy_coefficient else ())
        return reference | entropy

    @property
    def zero_advantage_matters(self) -> bool:
        """Whether a response with advantage zero has a gradient: by a KL or entropy term, or because zero is fitted."""
        return bool(self.fits_advantages or self.config.kl_coefficient or self.config.entropy_coefficient)

    @property
    def corrects(self) -> bool:
        """Whether the loss has an off-policy correction of any kind."""
        return self.takes_ratio or self.config.importance_cap is not None

    @property
    def needs_sampler(self) -> bool:
        """Whether the loss reads the sampler's log-probabilities, which given responses do not have."""
        return self.corrects or self.config.mask_low is not None or self.config.mask_high is not None

    def log_ratio(self, tokens: Tokens) -> torch.Tensor:
        """log pi / pi_old, [T], with gradient.

        pi_old is the sampling policy, as its engine reported it. If `importance_cap` already corrects for the engine,
        pi_old is the learner's own policy before this update, and the ratio is 1 (with a gradient).
        """
        old_T = tokens.sampler_logp_T if self.config.importance_cap is None else tokens.logp_T.detach()
        return tokens.logp_T - old_T

    def ratio(self, tokens: Tokens) -> torch.Tensor:
        """pi / pi_old of each token, [T], with gradient; its logarithm is clamped to +-20."""
        return ratio_of(self.log_ratio(tokens))

    def total(self, tokens: Tokens) -> torch.Tensor:
        """The final losses, [T]: `token_losses` with the config's terms and weights."""
        from raypoly.algorithms.losses.importance_correction import correction

        config = self.config
        losses_T = self.token_losses(tokens)
        if config.kl_coefficient:
            if tokens.reference_logp_T is None:
                raise ValueError("kl_coefficient needs the reference's log-probabilities, and got none")
            losses_T = losses_T + config.kl_coefficient * kl_terms(tokens.logp_T, tokens.reference_logp_T, config.kl)
        if config.entropy_coefficient:
            if tokens.logp_T.requires_grad and not tokens.entropy_T.requires_grad:
                raise ValueError("entropy_coefficient needs the entropy with its gradient, and got numbers")
            losses_T = losses_T - config.entropy_coefficient * tokens.entropy_T
        weight_T = correction(tokens, config).weight_T
        return losses_T if weight_T is None else losses_T * weight_T


def kl_terms(logp_T: torch.Tensor, reference_logp_T: torch.Tensor, estimator: Estimator) -> torch.Tensor:
    """Estimates of KL(pi || ref) at each token, [T], with gradient (J. Schulman, "Approximating KL Divergence", 2020).

    With d = log pi - log ref of a token that was drawn from pi, clamped to +-20:

        k1   d                     unbiased, may be negative
        k2   d^2 / 2               biased; its gradient d * grad log pi is, in expectation, the KL's
        k3   exp(-d) - 1 + d       unbiased, never negative; its gradient is, in expectation, that of KL(ref || pi)

    The gradient of k1 itself is grad log pi, which is zero in expectation and so only noise. Here k1 has its value and
    the gradient of k2. All are of a token given those before it, and ignore its effect on later tokens, as every
    per-token KL term does.
    """
    d_T = (logp_T - reference_logp_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if estimator == "k3":
        return (-d_T).expm1() + d_T
    half_square_T = d_T.square() / 2
    if estimator == "k2":
        return half_square_T
    return d_T.detach() + half_square_T - half_square_T.detach()
