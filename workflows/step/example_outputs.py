"""What programs give on a problem's example inputs: the votes of self-consistency, which see no verdict."""

from __future__ import annotations

from collections.abc import Sequence

from raypoly.core.values import Group, Problem
from raypoly.data.public_tests import example_inputs
from raypoly.verifier.answer_extraction import extract_answer
from raypoly.verifier.sandbox.answer_verdict import answer_text
from workflows.step.services import Services
from workflows.step.stages.score_stage import score_group


async def signatures(services: Services, group: Group, problem: Problem) -> Sequence[str | None] | None:
    """One text an attempt: the answer that it gives, or what its program gives on the example inputs, as verdicts show
    it (long results are cut). None for an attempt without an answer, and one whose program fails on an input.

    None where the problem has no example inputs, or they can't be run.
    """
    if problem.tests.kind == "answer":
        answers = [extract_answer(rollout.text) for rollout in group.rollouts]
        return [None if answer is None else answer_text(answer) for answer in answers]
    found: list[list[str] | None] = [[] for _ in group.rollouts]
    for example in (examples := example_inputs(problem)):
        verdicts = await score_group(group, example, services.scorers, services.skipped, group.slot)
        if any(verdict.status == "infra" for verdict in verdicts):
            return None
        for place, verdict in enumerate(verdicts):
            own, gave = found[place], verdict.status == "wrong" and verdict.failure is not None
            found[place] = [*own, verdict.failure.got] if own is not None and gave and verdict.failure else None
    return ["\n".join(own) if own is not None else None for own in found] if examples else None
