"""Losses (policy losses): the function to minimise, of advantages and log-probabilities.

A loss gives one number for each token. An aggregation weighs the tokens of a response and the responses of a step.
docs/losses.md has the formulas, and shows how to write one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.algorithms.losses.loss import Loss
from raypoly.algorithms.losses.loss_config import LossConfig
from raypoly.algorithms.losses.loss_tokens import Tokens
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_configured_plugin

KNOWN: Mapping[str, str] = {
    "policy_gradient": "raypoly.algorithms.losses.policy_gradient:PolicyGradient",
    "clipped_surrogate": "raypoly.algorithms.losses.clipped_surrogate:ClippedSurrogate",
    "gspo": "raypoly.algorithms.losses.gspo:GSPO",
    "cispo": "raypoly.algorithms.losses.cispo:CISPO",
    "flowrl": "raypoly.algorithms.losses.flowrl_loss:FlowRLLoss",
}
BFLOAT16_CAP = 2.0
"""The default `importance_cap` in bf16, where engine and learner round differently."""

__all__ = ["KNOWN", "Loss", "LossConfig", "Tokens", "build", "of_run"]


def build(name: str, **params: Any) -> Loss:
    """The loss of this name with these parameters. `UsageError` names an unknown or wrong parameter."""
    built: Loss = load_configured_plugin(name, KNOWN, "loss", params)
    return built


def of_run(config: Config) -> Loss:
    """The loss of a run's config, with the objective's defaults. In bf16 a loss without a ratio gets a cap, unless the
    config or the objective sets it (or null). `UsageError` where the objective's advantages are for another loss."""
    from raypoly.algorithms import objectives  # brings the config's reader, which a loss alone does not need

    objective = objectives.of_run(config)
    if objective.loss is not None and config.loss.name != objective.loss:
        raise UsageError(
            f"objective.name={config.objective.name} makes advantages for loss.name={objective.loss}, not for "
            f"loss.name={config.loss.name}: set loss.name={objective.loss}."
        )
    given = {**objective.loss_defaults, **config.loss.parameters}
    loss = build(config.loss.name, **given)
    if config.model.dtype == "float32" or loss.takes_ratio or "importance_cap" in given:
        return loss
    return build(config.loss.name, **given, importance_cap=BFLOAT16_CAP)
