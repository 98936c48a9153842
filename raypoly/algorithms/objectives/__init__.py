"""Objectives (advantage estimators): how a group's rewards and strategy labels become credit.

    from raypoly.algorithms.objectives import build
    build("poly_epo", set_size=4).advantages(rewards=[1, 1, 0, 0, 0, 0, 0, 1], labels=[1, 1, 2, 2, 2, 3, 3, 1])

To add one, write a file like `grpo.py` and name it in KNOWN, or keep it outside the tree and set
`objective.name=package.module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.algorithms.objectives.objective import Batch, Credit, Objective, ScoredGroup
from raypoly.core.config import Config
from raypoly.core.plugins import load_configured_plugin

KNOWN: Mapping[str, str] = {
    "poly_epo": "raypoly.algorithms.objectives.poly_epo:PolyEPO",
    "strategy_coverage": "raypoly.algorithms.objectives.strategy_coverage:StrategyCoverage",
    "grpo": "raypoly.algorithms.objectives.grpo:GRPO",
    "rloo": "raypoly.algorithms.objectives.rloo:RLOO",
    "reinforce_plus_plus": "raypoly.algorithms.objectives.reinforce_plus_plus:ReinforcePlusPlus",
    "gfpo": "raypoly.algorithms.objectives.gfpo:GFPO",
    "darling": "raypoly.algorithms.objectives.darling:Darling",
    "uniqueness_aware": "raypoly.algorithms.objectives.uniqueness_aware:UniquenessAware",
    "grpo_diversity": "raypoly.algorithms.objectives.grpo_diversity:GRPODiversity",
    "outcome_exploration": "raypoly.algorithms.objectives.outcome_exploration:OutcomeExploration",
    "diver": "raypoly.algorithms.objectives.diver:Diver",
    "upskill": "raypoly.algorithms.objectives.upskill:UpSkill",
    "pkpo": "raypoly.algorithms.objectives.pkpo:PKPO",
    "passk_training": "raypoly.algorithms.objectives.passk_training:PassKTraining",
    "flowrl": "raypoly.algorithms.objectives.flowrl:FlowRL",
    "supervised": "raypoly.algorithms.objectives.supervised_responses:Supervised",
    "distillation": "raypoly.algorithms.objectives.distillation:Distillation",
    "gdpo": "raypoly.algorithms.objectives.gdpo:GDPO",
    "best_minus_second": "raypoly.algorithms.objectives.best_minus_second:BestMinusSecond",
}

__all__ = ["KNOWN", "Batch", "Credit", "Objective", "ScoredGroup", "build", "of_run"]


def build(name: str, **params: Any) -> Objective:
    """The objective of this name with these parameters. `UsageError` names an unknown or wrong parameter."""
    built: Objective = load_configured_plugin(name, KNOWN, "objective", params)
    return built


def of_run(config: Config) -> Objective:
    """The objective of a run's config. Raises `UsageError` as `build` does."""
    return build(config.objective.name, **config.objective.parameters)
