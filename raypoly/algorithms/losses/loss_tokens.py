"""The input of a loss: a micro-batch of T response tokens of S whole responses.

tokens.response_mean(tokens.logp_T - tokens.sampler_logp_T)      # [T], the response's mean at each of its tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_LOG_RATIO = 20.0
"""The clamp of log-ratios: exp stays finite in float32, and useful bounds are closer to 0."""


@dataclass(frozen=True)
class Tokens:
    """One micro-batch. A response is never split over micro-batches, so sums over it are whole."""

    logp_T: torch.Tensor
    """[T]: log-probability of each token under the learner's weights, after temperature, with gradient."""
    sampler_logp_T: torch.Tensor
    """[T]: log-probability of the same token under the sampling policy, as the engine reported it; NaN at every token
    of a response that was given."""
    advantage_T: torch.Tensor
    """[T]: each token's own advantage, or its response's."""
    response_T: torch.Tensor
    """int64 [T]: the response, in 0 .. S-1, of each token."""
    length_S: torch.Tensor
    """int64 [S]: tokens of each response."""
    entropy_T: torch.Tensor
    """[T]: entropy of the token's distribution, nats; with gradient if the loss needs `entropy`."""
    reference_logp_T: torch.Tensor | None = None
    """[T]: log-probability of the same token under the reference model; None unless the loss needs `reference`."""
    prompt_hidden_SH: torch.Tensor | None = None
    """[S, H]: mean over the tokens of each response's prompt of the last hidden states, with gradient; None unless the
    loss needs `prompt_hidden`."""
    head_S: torch.Tensor | None = None
    """[S], or a shape of the head's choice: the head's output for `prompt_hidden_SH`; None without a head."""

    @cached_property
    def unsampled_T(self) -> torch.Tensor:
        """bool [T]: the tokens of responses that were given, not sampled. A single NaN does not make one."""
        return self.response_sum(self.sampler_logp_T.isnan().long()) == self.length_S[self.response_T]

    def response_sum(self, value_T: torch.Tensor) -> torch.Tensor:
        """[T]: at each token the sum over its response."""
        total_S = value_T.new_zeros(len(self.length_S)).index_add(0, self.response_T, value_T)
        return total_S[self.response_T]

    def response_mean(self, value_T: torch.Tensor) -> torch.Tensor:
        """[T]: at each token the mean over its response."""
        return self.response_sum(value_T) / self.length_S[self.response_T]


def ratio_of(log_ratio: torch.Tensor) -> torch.Tensor:
    """exp of a log-ratio within +-`MAX_LOG_RATIO`."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
