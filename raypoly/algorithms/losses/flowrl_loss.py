"""FlowRL (arXiv 2509.15207): fits probabilities to rewards, in place of maximising rewards.

    d = log Z(x) + mean over tokens of log pi - beta r_hat - mean over tokens of log ref        loss = w d^2
    w = sg(clip(pi(y) / pi_old(y), 1 - clip_low, 1 + clip_high))

If d is zero for every response, pi(y) is ref(y) exp(beta r_hat) / Z(x) by length-normalised log-probabilities: two
responses of equal reward keep their odds under the reference. The advantage is r_hat, and zeros are fitted too. log Z
is this loss's head, on the mean of the prompt's last hidden states.

    weight          `clipped` (default): the paper's w. `unclipped`: the released code's, which multiplies by the ratio
                    without the clip: a product over tokens, here within exp(+-20)
    detach_prompt   false (default), as in the released code: the gradient of log Z reaches the policy through the
                    prompt's hidden states. true keeps it in the head

The head is the released one, Linear, GELU, LayerNorm, ..., Linear to a number, without dropout, since a step must be
repeatable. At each token d has its response's value and the token's own share of the gradient, as in `gspo`.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from raypoly.algorithms.losses.aggregation import Aggregation
from raypoly.algorithms.losses.loss import Clipped, Loss, Need
from raypoly.algorithms.losses.loss_config import LossConfig
from raypoly.algorithms.losses.loss_tokens import Tokens, ratio_of


class FlowRLLossConfig(LossConfig):
    aggregation: Aggregation = Field(
        "seq_mean_token_mean", description="As for every loss; the paper's, where each response counts the same."
    )
    beta: float = Field(15.0, gt=0, description="What a normalised reward is multiplied by.")
    weight: Literal["clipped", "unclipped"] = Field(
        "clipped",
        description="Importance weight of a response: `clipped` is the paper's, `unclipped` the released code's.",
    )
    clip_low: float = Field(0.2, ge=0, le=1, description="A clipped weight is at least 1 - clip_low.")
    clip_high: float = Field(0.2, ge=0, description="A clipped weight is at most 1 + clip_high.")
    detach_prompt: bool = Field(
        False, description="Keep the gradient of log Z in its head; false lets it into the policy, as released."
    )
    head_layers: int = Field(3, ge=1, description="Linear layers of log Z.")
    head_width: int | None = Field(None, ge=1, description="Of the layers between; default: the model's hidden size.")
    head_lr: float | None = Field(None, gt=0, description="Learning rate of log Z; default: train.lr.")


class LogZ(nn.Module):
    """log Z of prompts, [S], from the means of their hidden states, [S, H]."""

    def __init__(self, hidden_size: int, layers: int, width: int, detach: bool) -> None:
        super().__init__()
        self._detach = detach
        parts: list[nn.Module] = []
        size = hidden_size
        for _ in range(layers - 1):
            parts += [nn.Linear(size, width), nn.GELU(), nn.LayerNorm(width)]
            size = width
        self.net = nn.Sequential(*parts, nn.Linear(size, 1))

    def forward(self, prompt_hidden_SH: torch.Tensor) -> torch.Tensor:
        log_z_S1: torch.Tensor = self.net(prompt_hidden_SH.detach() if self._detach else prompt_hidden_SH)
        return log_z_S1[:, 0]


class FlowRLLoss(Loss):
    Config = FlowRLLossConfig
    config: FlowRLLossConfig
    takes_ratio = True
    fits_advantages = True

    @property
    def needs(self) -> frozenset[Need]:
        return super().needs | {"reference", "prompt_hidden"}

    @property
    def head_lr(self) -> float | None:
        return self.config.head_lr

    def head(self, hidden_size: int) -> nn.Module:
        config = self.config
        return LogZ(hidden_size, config.head_layers, config.head_width or hidden_size, config.detach_prompt)

    def residual(self, tokens: Tokens) -> torch.Tensor:
        """d, [T]: its response's value at each token, with the token's own gradient and that of log Z."""
        if tokens.head_S is None or tokens.reference_logp_T is None:
            raise ValueError("flowrl needs log Z and the reference's log-probabilities, and got none")
        mean_T = tokens.response_mean(tokens.logp_T.detach() - tokens.reference_logp_T)
        own_T = tokens.logp_T - tokens.logp_T.detach()
        return tokens.head_S[tokens.response_T] + mean_T + own_T - self.config.beta * tokens.advantage_T

    def response_ratio(self, tokens: Tokens) -> torch.Tensor:
        """pi(y) / pi_old(y), [T], without gradient: a product over the response, not clipped."""
        return ratio_of(tokens.response_sum(self.log_ratio(tokens).detach()))

    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        weight_T = self.response_ratio(tokens)
        if self.config.weight == "clipped":
            weight_T = weight_T.clamp(1 - self.config.clip_low, 1 + self.config.clip_high)
        return weight_T * self.residual(tokens).square()

    @torch.no_grad()
    def clipped(self, tokens: Tokens) -> Clipped | None:
        """Tokens with a clipped weight, for either sign of the residual."""
        if self.config.weight == "unclipped":
            return None
        ratio_T = self.response_ratio(tokens)
        return Clipped(ratio_T < 1 - self.config.clip_low, ratio_T > 1 + self.config.clip_high)
