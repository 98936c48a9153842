"""Gates: which plans are accepted (J of CPPO, arXiv 2605.27000, equation 9).

gate = of_run(config)
await gate.probabilities(problem, group.drafts, methods=4)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.core.config import Config
from raypoly.core.plugins import load_configured_plugin
from raypoly.recipes.cppo.gates.base_gate import Gate, GateAnswers, GateConfig

KNOWN: Mapping[str, str] = {
    "contract": "raypoly.recipes.cppo.gates.contract:ContractGate",
    "model": "raypoly.recipes.cppo.gates.model_gate:ModelGate",
}

__all__ = ["KNOWN", "Gate", "GateAnswers", "GateConfig", "build", "of_run"]


def build(name: str, **params: Any) -> Gate:
    """The gate of this name with these parameters. `UsageError` names an unknown or wrong parameter."""
    built: Gate = load_configured_plugin(name, KNOWN, "gate", params)
    return built


def of_run(config: Config) -> Gate:
    """The gate of a run's config. Raises `UsageError` as `build` does."""
    return build(config.gate.name, **config.gate.parameters)
