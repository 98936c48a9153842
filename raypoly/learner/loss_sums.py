"""Sums over a step's tokens: mismatch of sampler and learner; shares of clipped, truncated and masked tokens.

With w = pi_learner / pi_sampler over the n trained tokens of a known pi_sampler, log w clamped to +-20:

    mismatch k1   mean of -log w            of KL(sampler || learner), J. Schulman 2020
    mismatch k3   mean of w - 1 - log w     the same, never negative
    ESS           (sum w)^2 / (n sum w^2)   1 if all weights are equal, near 1/n if one dominates

A response that was given, not sampled, has NaN at each token and is left out of all of these.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import torch

from raypoly.algorithms.losses.importance_correction import correction
from raypoly.algorithms.losses.loss import Loss, kl_terms
from raypoly.algorithms.losses.loss_tokens import MAX_LOG_RATIO, Tokens
from raypoly.core.errors import WeightsMismatch
from raypoly.learner.update_stats import LossStats

_SQUARE = "square"  # w^2, for the effective sample size
_REFERENCE = "kl_reference"


class LossSums:
    """Sums over micro-batches, on each rank and then over ranks."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.entropy = 0.0
        """Nats."""
        self.rows = 0
        self.tokens = 0
        self.sampled = 0
        """Tokens whose sampler is known."""
        self._largest = 0.0
        self._sums: dict[str, float] = {}

    @torch.no_grad()
    def add(self, tokens: Tokens, loss: Loss, value: float) -> None:
        """Add a micro-batch's tokens; `value` is its part of the step's loss."""
        # All sums go into one tensor, so that a GPU's host waits for it once a micro-batch.
        known_T = ~tokens.unsampled_T
        off_T = (tokens.logp_T.double() - tokens.sampler_logp_T).where(known_T, 0.0)
        of_sampler = {name: value_T.where(known_T, 0) for name, value_T in _of_ratio(tokens, loss).items()}
        per_token = {**_of_sampler(off_T), **of_sampler, **_of_reference(tokens)}
        sums = [value_T.sum(dtype=torch.float64) for value_T in per_token.values()]
        *values, largest, sampled = torch.stack([*sums, off_T.abs().max(), known_T.sum().double()]).tolist()
        for name, value_sum in zip(per_token, values, strict=True):
            self._sums[name] = self._sums.get(name, 0.0) + value_sum
        self._note_largest(largest)
        self.loss += value
        self.entropy += float(tokens.entropy_T.sum())
        self.rows += len(tokens.length_S)
        self.tokens += len(off_T)
        self.sampled += int(sampled)

    def merge(self, other: LossSums) -> None:
        for name, value in other._sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._note_largest(other._largest)
        self.loss += other.loss
        self.entropy += other.entropy
        self.rows += other.rows
        self.tokens += other.tokens
        self.sampled += other.sampled

    def measured(self) -> LossStats:
        """Means over all tokens; those of a ratio to the sampler over sampled tokens."""
        of_all = {name: value / self.tokens for name, value in self._sums.items() if name == _REFERENCE}
        if not self.sampled:
            return LossStats(**of_all)
        means = {name: value / self.sampled for name, value in self._sums.items()} | of_all
        square = means.pop(_SQUARE)
        return LossStats(mismatch_max=self._largest, importance_ess=means["importance_mean"] ** 2 / square, **means)

    def _note_largest(self, largest: float) -> None:
        if math.isnan(largest) or largest > self._largest:  # once NaN, it stays so
            self._largest = largest


def check_mismatch(measured: LossStats, limit: float | None, version: int, sampled_by: Collection[int]) -> None:
    """Raise `WeightsMismatch` if a step's mean mismatch is NaN or above `limit` (`train.max_mismatch`).

    `version` is the learner's, `sampled_by` those of the step's rows.
    """
    # `workflows/step/weight_sync.py` proves which weights an engine has, not what it computes with them. This covers
    # every trained token, so it also detects an engine that fails later.
    found = measured.mismatch_mean
    if limit is None or found <= limit:
        return
    versions = ", ".join(map(str, sorted(sampled_by)))
    raise WeightsMismatch(
        f"Step {version} was sampled under weights of version {versions}, and the learner has version {version}: their "
        f"log-probabilities differ by {found:.3g} a token (at most {measured.mismatch_max:.3g}), more than "
        f"train.max_mismatch={limit:g}, so the engine's weights were stale or wrong: raise the limit to train on these "
        "rows anyway, or use run.fresh=true."
    )


def _of_sampler(off_T: torch.Tensor) -> dict[str, torch.Tensor]:
    """[T] each, by the names of `LossStats`."""
    log_ratio_T = off_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return {
        "mismatch_mean": off_T.abs(),
        "mismatch_k1": -log_ratio_T,
        "mismatch_k3": log_ratio_T.expm1() - log_ratio_T,
    }


def _of_ratio(tokens: Tokens, loss: Loss) -> dict[str, torch.Tensor]:
    """[T] each, by the names of `LossStats`; only those that this loss has."""
    done, clipped = correction(tokens, loss.config), loss.clipped(tokens)
    found = {"importance_mean": done.ratio_T, _SQUARE: done.ratio_T.double().square()}
    if done.truncated_T is not None:
        found["importance_truncated"] = done.truncated_T
    if done.masked_T is not None:
        found["tokens_masked"] = done.masked_T
    if clipped is not None:
        found |= {"ratio_clipped_low": clipped.low_T, "ratio_clipped_high": clipped.high_T}
    return found


def _of_reference(tokens: Tokens) -> dict[str, torch.Tensor]:
    if tokens.reference_logp_T is None:
        return {}
    return {_REFERENCE: kl_terms(tokens.logp_T.double(), tokens.reference_logp_T.double(), "k3")}
