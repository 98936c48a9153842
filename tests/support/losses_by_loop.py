"""Losses by a loop over single tokens in plain Python: the formulas of docs/losses.md, without the library's code.

What a gradient must not reach is computed from `frozen`, so that a finite difference of `live` is the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import Any

import numpy as np

Ragged = list[list[float]]
DEFAULTS: dict[str, Any] = {
    "importance_cap": None,
    "importance_level": "token",
    "mask_low": None,
    "mask_high": None,
    "mask_level": "token",
    "kl_coefficient": 0.0,
    "kl": "k3",
    "entropy_coefficient": 0.0,
}
OWN: dict[str, dict[str, Any]] = {
    "policy_gradient": {"aggregation": "seq_mean_token_sum_norm"},
    "clipped_surrogate": {
        "aggregation": "seq_mean_token_sum_norm",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "dual_clip": 3.0,
    },
    "gspo": {"aggregation": "seq_mean_token_mean", "clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"aggregation": "token_mean", "clip_low": 1.0, "clip_high": 0.28},
    "flowrl": {
        "aggregation": "seq_mean_token_mean",
        "beta": 15.0,
        "weight": "clipped",
        "clip_low": 0.2,
        "clip_high": 0.2,
    },
}


@dataclass(frozen=True)
class Responses:
    """A step of S responses of different lengths."""

    sampler: Ragged
    reference: Ragged
    advantages: list[float]
    t_max: int
    frozen: Ragged = field(default_factory=list)
    """The learner's log-probabilities where no gradient goes."""
    log_z: list[float] = field(default_factory=list)
    """Of each response's prompt."""


def step_loss(name: str, given: dict[str, Any], step: Responses, live: Ragged, entropy: Ragged) -> float:
    """The loss of the whole step."""
    params = {**DEFAULTS, **OWN[name], **given}
    total, tokens = 0.0, sum(map(len, live))
    for s in range(len(live)):
        for t in range(len(live[s])):
            term = policy_term(name, params, step, live[s], s, t)
            if params["kl_coefficient"]:
                term += params["kl_coefficient"] * kl_term(params["kl"], live[s][t], step, s, t)
            term -= params["entropy_coefficient"] * entropy[s][t]
            term *= correction_weight(params, step, s, t)
            total += term * aggregation_weight(params["aggregation"], len(live), len(live[s]), tokens, step.t_max)
    return total


def policy_term(name: str, params: dict[str, Any], step: Responses, live: list[float], s: int, t: int) -> float:
    advantage = step.advantages[s]
    old = step.sampler[s] if params["importance_cap"] is None else step.frozen[s]
    if name == "policy_gradient":
        return -advantage * live[t]
    low, high = 1 - params["clip_low"], 1 + params["clip_high"]
    if name == "cispo":
        return -min(max(exp(step.frozen[s][t] - old[t]), low), high) * advantage * live[t]
    frozen = step.frozen[s]
    if name == "flowrl":
        w = exp(sum(frozen[u] - old[u] for u in range(len(live))))
        w = min(max(w, low), high) if params["weight"] == "clipped" else w
        mean = sum(frozen[u] - step.reference[s][u] for u in range(len(live))) / len(live)
        return w * (step.log_z[s] + mean + live[t] - frozen[t] - params["beta"] * advantage) ** 2
    if name == "gspo":
        ratio = exp(sum(frozen[u] - old[u] for u in range(len(live))) / len(live)) * exp(live[t] - frozen[t])
    else:
        ratio = exp(live[t] - old[t])
    objective = min(ratio * advantage, min(max(ratio, low), high) * advantage)
    if name == "clipped_surrogate" and params["dual_clip"] is not None and advantage < 0:
        objective = max(objective, params["dual_clip"] * advantage)
    return -objective


def kl_term(kind: str, live: float, step: Responses, s: int, t: int) -> float:
    reference = step.reference[s][t]
    d, frozen = live - reference, step.frozen[s][t] - reference
    if kind == "k3":
        return exp(-d) - 1 + d
    if kind == "k2":
        return d * d / 2
    return frozen + frozen * (d - frozen)  # k1: its value, and the gradient d * grad log pi


def correction_weight(params: dict[str, Any], step: Responses, s: int, t: int) -> float:
    off = [a - b for a, b in zip(step.frozen[s], step.sampler[s], strict=True)]
    weight = 1.0
    if params["importance_cap"] is not None:
        w = exp(sum(off)) if params["importance_level"] == "sequence" else exp(off[t])
        weight = min(w, params["importance_cap"])
    w = exp(sum(off) / len(off)) if params["mask_level"] == "sequence" else exp(off[t])
    below = params["mask_low"] is not None and w < params["mask_low"]
    above = params["mask_high"] is not None and w > params["mask_high"]
    return 0.0 if below or above else weight


def aggregation_weight(kind: str, responses: int, length: int, tokens: int, t_max: int) -> float:
    return {
        "token_mean": 1 / tokens,
        "seq_mean_token_mean": 1 / (responses * length),
        "seq_mean_token_sum": 1 / responses,
        "seq_mean_token_sum_norm": 1 / (responses * t_max),
    }[kind]


def random_step(seed: int, spread: float = 0.35) -> tuple[Responses, Ragged, Ragged]:
    """Six responses of 1 to 6 tokens whose ratios are off on both sides: the step, live log-probs, entropies."""
    rng = np.random.default_rng(seed)
    lengths = (3, 1, 6, 2, 4, 5)

    def ragged(middle: float, width: float) -> Ragged:
        return [rng.normal(middle, width, length).tolist() for length in lengths]

    live = ragged(-1.5, 0.4)
    moved = [rng.normal(0.0, spread) for _ in lengths]  # a whole response's, so that its mean ratio is off as well
    sampler = [[x + m + rng.normal(0.0, spread) for x in xs] for xs, m in zip(live, moved, strict=True)]
    reference = [[x + rng.normal(0.0, 0.5) for x in xs] for xs in live]
    advantages = [1.0, -1.2, 0.7, -0.4, 0.0, -2.0]
    entropy = ragged(1.0, 0.2)
    return Responses(sampler, reference, advantages, 8, live, rng.normal(0.0, 2.0, 6).tolist()), live, entropy
