"""Objectives (advantage estimators): how a group's rewards and strategy labels become advantages.

    from raypoly.objectives import build
    build("poly_epo", set_size=4).advantages(rewards=[1, 1, 0, 0, 0, 0, 0, 1], labels=[1, 1, 2, 2, 2, 3, 3, 1])

To add one, write a file like `grpo.py` and name it in KNOWN, or keep it outside the tree and set
`objective.name=package.module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.config import Config
from raypoly.objectives.objective import Batch, Objective, ScoredGroup
from raypoly.plugins import load_configured_plugin

KNOWN: Mapping[str, str] = {
    "poly_epo": "raypoly.objectives.poly_epo:PolyEPO",
    "grpo": "raypoly.objectives.grpo:GRPO",
    "rloo": "raypoly.objectives.rloo:RLOO",
    "reinforce_plus_plus": "raypoly.objectives.reinforce_plus_plus:ReinforcePlusPlus",
    "gfpo": "raypoly.objectives.gfpo:GFPO",
    "darling": "raypoly.objectives.darling:Darling",
    "uniqueness_aware": "raypoly.objectives.uniqueness_aware:UniquenessAware",
    "grpo_diversity": "raypoly.objectives.grpo_diversity:GRPODiversity",
    "outcome_exploration": "raypoly.objectives.outcome_exploration:OutcomeExploration",
    "diver": "raypoly.objectives.diver:Diver",
    "cppo": "raypoly.objectives.cppo:CPPO",
    "upskill": "raypoly.objectives.upskill:UpSkill",
    "pkpo": "raypoly.objectives.pkpo:PKPO",
    "passk_training": "raypoly.objectives.passk_training:PassKTraining",
    "flowrl": "raypoly.objectives.flowrl:FlowRL",
    "supervised": "raypoly.objectives.supervised_responses:Supervised",
    "best_minus_second": "raypoly.objectives.best_minus_second:BestMinusSecond",
}

__all__ = ["KNOWN", "Batch", "Objective", "ScoredGroup", "build", "of_run"]


def build(name: str, **params: Any) -> Objective:
    """The objective of this name with these parameters. `UsageError` names an unknown or wrong parameter."""
    built: Objective = load_configured_plugin(name, KNOWN, "objective", params)
    return built


def of_run(config: Config) -> Objective:
    """The objective of a run's config. Raises `UsageError` as `build` does."""
    return build(config.objective.name, **config.objective.parameters)
