"""Aggregation of token losses: a weight for each token, known as soon as its response is.

A step's loss is the sum over responses s and tokens t of weight(s) * loss(s, t) * final. So the gradient does not
depend on the division into micro-batches.

    token_mean               1 / (all response tokens)             DAPO
    seq_mean_token_mean      1 / (S * |y|)                         GRPO
    seq_mean_token_sum       1 / S
    seq_mean_token_sum_norm  1 / (S * T_max)                       equation 4 and Algorithm 2; Dr.GRPO

S is the number of *planned* responses, |B| * N: a group that drops out does not change the divisor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]


@dataclass(frozen=True)
class Normalisers:
    """The numbers that divide a step's loss, fixed before the first response arrives."""

    prompts: int
    """|B|, planned."""
    rollouts: int
    """N."""
    t_max: int
    """T_max, the longest response in tokens."""


def response_weight(kind: Aggregation, length: int, normalisers: Normalisers) -> float:
    """The weight of each token of a response of `length` tokens."""
    sequences = normalisers.prompts * normalisers.rollouts
    if kind == "token_mean":
        return 1.0
    if kind == "seq_mean_token_mean":
        return 1.0 / (sequences * max(length, 1))
    if kind == "seq_mean_token_sum":
        return 1.0 / sequences
    return 1.0 / (sequences * normalisers.t_max)


def final_factor(kind: Aggregation, tokens: int) -> float:
    """The factor of the summed gradient, given the number of a step's `tokens`."""
    return 1.0 / max(tokens, 1) if kind == "token_mean" else 1.0
