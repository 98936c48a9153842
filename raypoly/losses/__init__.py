"""Losses (policy losses): what to minimise, from advantages and log-probabilities. An objective gives the advantages.

A loss gives one number a token. An aggregation weighs the tokens of a response against each other and the responses
of a step against each other. docs/losses.md has the formulas, and shows how to write one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.config import Config
from raypoly.losses.loss import Loss
from raypoly.losses.loss_config import LossConfig
from raypoly.losses.loss_tokens import Tokens
from raypoly.plugins import load_configured_plugin

KNOWN: Mapping[str, str] = {
    "policy_gradient": "raypoly.losses.policy_gradient:PolicyGradient",
    "clipped_surrogate": "raypoly.losses.clipped_surrogate:ClippedSurrogate",
    "gspo": "raypoly.losses.gspo:GSPO",
    "cispo": "raypoly.losses.cispo:CISPO",
    "flowrl": "raypoly.losses.flowrl_loss:FlowRLLoss",
}
BFLOAT16_CAP = 2.0
"""The default `importance_cap` in bf16, where engine and learner round differently."""

__all__ = ["KNOWN", "Loss", "LossConfig", "Tokens", "build", "of_run"]


def build(name: str, **params: Any) -> Loss:
    """The loss of that name with its parameters; `UsageError` names a parameter that is unknown or wrong."""
    built: Loss = load_configured_plugin(name, KNOWN, "loss", params)
    return built


def of_run(config: Config) -> Loss:
    """The loss of a run's config. In bf16 one that takes no ratio gets a cap, unless the config says one or null."""
    given = config.loss.model_extra or {}
    loss = build(config.loss.name, **given)
    if config.model.dtype == "float32" or loss.takes_ratio or "importance_cap" in given:
        return loss
    return build(config.loss.name, **given, importance_cap=BFLOAT16_CAP)
