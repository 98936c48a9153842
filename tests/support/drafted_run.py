"""Write the run of `scored_run` again as a program with drafts would have left it.

Step 0, slot 0: two plans, the first one hostile and cut, with attempts behind both and one behind none. They are
trained. Slot 1: three tries with verdicts on public tests: the first failed and was tried again (draft 2), the second
is attempt 1 itself. Step 1, slot 0: no drafts. Slot 1: two plans and no attempts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from raypoly import Run
from raypoly.analysis.metrics.decoded_tokens import DecodedTokens
from raypoly.core.values import Draft, FinishReason, Float64, Group, Rollout
from raypoly.run.sinks import MetricsFile
from raypoly.run.store.catalogue import step_key
from raypoly.run.store.rollout_files import encode_step
from raypoly.run.store.step_records import CompletedStep
from tests.support.finished_run import HOSTILE
from tests.support.scored_run import (
    LOOP,
    PROGRAMS,
    STEPS,
    WRONG,
    Change,
    Label,
    as_scored,
    rollout,
    without_labels,
    write_scored_run,
)

PLAN = "A: Walk the zigzag."
TOKENS = {"plan": 28, "solve": 36, "try": 9}
"""What the run decoded, by role."""


def write_drafted_run(folder: Path, stored: Change = as_scored, label: Label = without_labels, *overrides: str) -> str:
    """Takes and returns what `write_scored_run` does."""
    run = Run(write_scored_run(folder, stored, label, None, *overrides))
    steps = [_with_drafts(run.completed(step)) for step in range(STEPS)]
    (run.directory / "metrics.jsonl").unlink()
    metrics = MetricsFile(run.directory / "metrics.jsonl")
    for step in steps:
        (run.directory / step_key(step.step)).write_bytes(encode_step(step))
        metrics.log(step.applied.metrics)
    metrics.close()
    return run.uri


def _with_drafts(step: CompletedStep) -> CompletedStep:
    groups = [_planned(step.groups[0]), _tried(step.groups[1])]
    of_drafts: list[Float64 | None] = [np.array([0.75, -0.25]), None]
    rewards, advantages = list(step.rewards), list(step.advantages)
    if step.step == 1:
        groups, of_drafts = [step.groups[0], _unsolved(step.groups[1])], [None, None]
        rewards[1] = advantages[1] = np.zeros(0)
    found = [DecodedTokens.of_group(group).by_role for group in groups]
    roles = sorted({role for each in found for role in each})
    tokens = {role: sum(each.get(role, 0) for each in found) for role in roles}
    made = {role: sum(draft.role == role for group in groups for draft in group.drafts) for role in roles}
    drafts = {role: count for role, count in made.items() if count}
    row = {**step.applied.metrics, "decoded_tokens": tokens, "drafts": drafts}
    applied = replace(step.applied, metrics=row)
    return CompletedStep(step.step, tuple(groups), tuple(rewards), tuple(advantages), applied, tuple(of_drafts))


def _plan(text: str, seed: int, cut: bool = False) -> Draft:
    tokens = np.arange(7, dtype=np.int32)
    end: FinishReason = "length" if cut else "stop"
    return Draft(Rollout(tokens, tokens, np.full(7, -0.5, np.float32), text, end, seed, 0), "plan")


def _planned(group: Group) -> Group:
    drafts = (_plan(f"{PLAN}\nB: \u202eUse {HOSTILE}", 100, cut=True), _plan("A: Add as you go.\nB: Sort.", 101))
    return replace(group, drafts=drafts, draft_of=np.array([0, 0, 1, -1], np.int32))


def _tried(group: Group) -> Group:
    drafts = (
        Draft(rollout(WRONG, 100), "try"),
        Draft(rollout(LOOP, 101), "try"),
        Draft(rollout("def f(ns): pass  # again\n", 102), "try", 0),
    )
    return replace(group, drafts=drafts, draft_of=np.array([2, 1, *[-1] * (len(PROGRAMS) - 2)], np.int32))


def _unsolved(group: Group) -> Group:
    return Group(group.step, group.slot, group.problem_id, (), {}, (_plan(PLAN, 100), _plan("", 101)))
