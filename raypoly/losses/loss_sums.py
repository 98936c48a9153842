"""What a step's tokens say of its loss: how far the sampler is off, what was clipped, truncated and left out.

With w = pi_learner / pi_sampler over the n tokens that were trained, log w clamped to +-20:

    mismatch k1   mean of -log w            of KL(sampler || learner), J. Schulman 2020
    mismatch k3   mean of w - 1 - log w     the same, never negative
    ESS           (sum w)^2 / (n sum w^2)   1 where all weights are equal, towards 1/n where one counts alone
"""

from __future__ import annotations

import math

import torch

from raypoly.losses.importance_correction import correction
from raypoly.losses.kl import kl_terms
from raypoly.losses.loss import Loss
from raypoly.losses.loss_stats import LossStats
from raypoly.losses.loss_tokens import MAX_LOG_RATIO, Tokens

SQUARE = "square"
"""Of w, on its way to the effective sample size."""


class LossSums:
    """Adds up over micro-batches what `LossStats` is made of; one transfer from the device a micro-batch."""

    def __init__(self) -> None:
        self._tokens, self._largest = 0, 0.0
        self._sums: dict[str, float] = {}

    @torch.no_grad()
    def add(self, tokens: Tokens, loss: Loss) -> None:
        """Take in the tokens of one micro-batch."""
        off_T = tokens.logp_T.double() - tokens.sampler_logp_T
        per_token = {**_of_sampler(off_T), **_of_loss(tokens, loss)}
        sums = [value_T.sum(dtype=torch.float64) for value_T in per_token.values()]
        *values, largest = torch.stack([*sums, off_T.abs().max()]).tolist()
        for name, value in zip(per_token, values, strict=True):
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._note_largest(largest)
        self._tokens += len(off_T)

    def merge(self, other: LossSums) -> None:
        """Take in what another rank has added up."""
        for name, value in other._sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._note_largest(other._largest)
        self._tokens += other._tokens

    def measured(self) -> LossStats:
        """Of all that was added."""
        if not self._tokens:
            return LossStats()
        means = {name: value / self._tokens for name, value in self._sums.items()}
        square = means.pop(SQUARE)
        return LossStats(mismatch_max=self._largest, importance_ess=means["importance_mean"] ** 2 / square, **means)

    def _note_largest(self, largest: float) -> None:
        if math.isnan(largest) or largest > self._largest:  # once NaN, it stays so
            self._largest = largest


def _of_sampler(off_T: torch.Tensor) -> dict[str, torch.Tensor]:
    """[T] each, by the names of `LossStats`, from log w."""
    log_ratio_T = off_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return {
        "mismatch_mean": off_T.abs(),
        "mismatch_k1": -log_ratio_T,
        "mismatch_k3": log_ratio_T.expm1() - log_ratio_T,
    }


def _of_loss(tokens: Tokens, loss: Loss) -> dict[str, torch.Tensor]:
    """[T] each, by the names of `LossStats`; without what this loss does not have."""
    done, clipped = correction(tokens, loss.config), loss.clipped(tokens)
    found = {"importance_mean": done.ratio_T, SQUARE: done.ratio_T.double().square()}
    if done.truncated_T is not None:
        found["importance_truncated"] = done.truncated_T
    if done.masked_T is not None:
        found["tokens_masked"] = done.masked_T
    if clipped is not None:
        found |= {"ratio_clipped_low": clipped.low_T, "ratio_clipped_high": clipped.high_T}
    if tokens.reference_logp_T is not None:
        found["kl_reference"] = kl_terms(tokens.logp_T.double(), tokens.reference_logp_T.double(), "k3")
    return found
