"""The planned rows of a group, which divide a step's loss beside the planned problems."""

from __future__ import annotations

from raypoly.algorithms import objectives
from raypoly.algorithms.objectives import Objective
from raypoly.core.config import Config
from raypoly.rollouts import scaffolds


def answers_for_drafts(objective: Objective) -> bool:
    """Whether the objective gives drafts advantages."""
    return type(objective).compute_drafts is not Objective.compute_drafts


def planned_rows(config: Config) -> int:
    """N where drafts are not trained, N + D where they are, D without attempts; at least 1. Planned numbers: what was
    sampled changes no divisor."""
    scaffold, attempts = scaffolds.of_run(config), config.train.rollouts
    trained = answers_for_drafts(objectives.of_run(config)) or scaffold.trains_drafts
    drafts = scaffold.planned_drafts(attempts) if trained else 0
    return max(1, scaffold.planned_attempts(attempts) + drafts)
