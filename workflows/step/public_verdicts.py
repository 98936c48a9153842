"""Verdicts of drafts on a problem's public tests alone: what a program may show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raypoly.core.values import Group, Problem, Rollout, Verdict
from workflows.step.services import Services
from workflows.step.stages.score_stage import score_group


async def public_verdicts(
    services: Services, slot: int, problem: Problem, rollouts: Sequence[Rollout]
) -> Sequence[Verdict | None]:
    """One verdict a rollout, `infra` throughout where the tests can't be run; None where the problem has no public
    tests. `slot`: programs of a low one are run before those of a higher one."""
    if problem.public_tests is None:
        return [None] * len(rollouts)
    shown = replace(problem, id=f"{problem.id} (public tests)", tests=problem.public_tests)
    return await score_group(Group(0, slot, shown.id, tuple(rollouts)), shown, services.scorers, services.skipped, slot)
