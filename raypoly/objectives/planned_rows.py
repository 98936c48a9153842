"""The planned rows of a group, which divide a step's loss beside the planned problems."""

from __future__ import annotations

from raypoly import objectives, programs
from raypoly.config import Config
from raypoly.objectives import Objective


def answers_for_drafts(objective: Objective) -> bool:
    """Whether the objective gives drafts advantages."""
    return type(objective).compute_drafts is not Objective.compute_drafts


def planned_rows(config: Config) -> int:
    """N where drafts are not trained, N + D where they are, D without attempts; at least 1. Planned numbers: what was
    sampled changes no divisor."""
    program, attempts = programs.of_run(config), config.train.rollouts
    trained = answers_for_drafts(objectives.of_run(config)) or program.trains_drafts
    drafts = program.planned_drafts(attempts) if trained else 0
    return max(1, program.planned_attempts(attempts) + drafts)
