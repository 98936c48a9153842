"""The stage `score`: the programs of a group's responses are run against the problem's tests, in sandboxes."""

from __future__ import annotations

from typing import Any

from actors.scorer_pool import ScorerPool
from raypoly.algorithms.group_stage import GroupStage
from raypoly.core.values import Group, Problem, Verdict
from raypoly.data.formats import program_of
from raypoly.verifier.code_extraction import extract_code
from workflows.step.services import Services
from workflows.step.skipped_groups import SkippedGroups, infra_reason


class ScoreStage(GroupStage):
    """Its part is a tuple of N verdicts; the store has columns for them."""

    name = "score"
    after = ()

    async def run(self, group: Group, problem: Problem, services: Services) -> tuple[Verdict, ...]:
        return await score_group(group, problem, services.scorers, services.skipped, group.slot)

    def seen(self, group: Group, services: Services) -> None:
        """Count it among the run's groups. Raises `TooManySetAside` where too many are skipped."""
        services.skipped.count(1, int(infra_reason(group.verdicts) is not None))

    def encode(self, part: Any, size: int) -> Any:
        return part


async def score_group(
    group: Group, problem: Problem, scorers: ScorerPool, skipped: SkippedGroups, order: int
) -> tuple[Verdict, ...]:
    """One verdict a response; `infra` throughout where the problem's tests can't be run.

    `order`: programs of a low one are run before those of a higher one.
    """
    found = [extract_code(problem, rollout.text) for rollout in group.rollouts]
    codes = [None if code is None else program_of(problem, code) for code in found]
    return await skipped.verdicts(problem, group.size, lambda: scorers.score(problem, codes, order=order))
