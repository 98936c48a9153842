"""A group's programs, found in its responses and run: what training, evaluation and preparation share."""

from __future__ import annotations

from actors.scorer import ScorerPool
from raypoly.problems.formats import program_of
from raypoly.scoring.code_extraction import extract_code
from raypoly.values import Group, Problem, Verdict
from workflows.step.skipped_groups import SkippedGroups


async def verdicts_of(
    group: Group, problem: Problem, scorers: ScorerPool, aside: SkippedGroups, order: int
) -> tuple[Verdict, ...]:
    """One verdict a response; `infra` throughout where the problem's tests can't be run."""
    found = [extract_code(problem, rollout.text) for rollout in group.rollouts]
    codes = [None if code is None else program_of(problem, code) for code in found]
    return await aside.verdicts(problem, group.size, lambda: scorers.score(problem, codes, order=order))
