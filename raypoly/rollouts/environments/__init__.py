"""Environments: what answers a rollout's turns, in training and in evaluation (docs/environments.md).

    environment = of_run(config)
    await environment.respond(problem, conversation, services)

To add one, write a file like `repair.py` and name it in KNOWN, or keep it outside the tree and set
`environment.name=package.module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping

from raypoly.core.config import Config
from raypoly.core.plugins import load_configured_plugin
from raypoly.rollouts.environments.environment import (
    Conversation,
    Done,
    Environment,
    EnvironmentConfig,
    EnvironmentServices,
    Observation,
    ToolResult,
)

KNOWN: Mapping[str, str] = {
    "single_turn": "raypoly.rollouts.environments.environment:SingleTurn",
    "repair": "raypoly.rollouts.environments.repair:Repair",
    "python": "raypoly.rollouts.environments.python_tool:PythonTool",
}

__all__ = [
    "KNOWN",
    "Conversation",
    "Done",
    "Environment",
    "EnvironmentConfig",
    "EnvironmentServices",
    "Observation",
    "ToolResult",
    "of_run",
]


def of_run(config: Config) -> Environment:
    """Raises `UsageError` for an unknown name, and an unknown or wrong parameter."""
    section = config.environment
    built: Environment = load_configured_plugin(section.name, KNOWN, "environment", section.parameters)
    return built
