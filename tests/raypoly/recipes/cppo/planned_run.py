"""Write a small run of CPPO, plans of K = 2 methods, with its own gate, objective and scaffold over the run of
`scored_run`.

Step 0, slot 0: a plan that keeps the contract, with hostile text; its attempts passed, and the second one did not do
what its method says. Then a plan without a second method, whose attempts failed. Slot 1: two plans and no attempts.
Step 1 has no drafts.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from raypoly import Run
from raypoly.algorithms import objectives
from raypoly.algorithms.objectives import ScoredGroup
from raypoly.core.values import Draft, Group, Rollout, Verdict
from raypoly.data import build_problem_set
from raypoly.recipes.cppo.gate_stage import ContractGate
from raypoly.run.store.catalogue import step_key
from raypoly.run.store.rollout_columns import of_drafts
from raypoly.run.store.rollout_files import encode_step
from raypoly.run.store.step_records import CompletedStep
from tests.support.finished_run import HOSTILE
from tests.support.scored_run import without_labels, write_scored_run

FIRST = f"A: Loop over the numbers \u202e{HOSTILE}"
PLANS = (f"{FIRST}\nB: Use recursion.", "A: Sum them.\nThat is all.")
_NONE = np.zeros(0, np.int32)


def write_planned_run(folder: Path, *overrides: str) -> str:
    """Returns the run's URI."""
    own = ("scaffold.name=tuple", "scaffold.methods=2", "objective.name=cppo", *overrides)
    run = Run(write_scored_run(folder, _looping, without_labels, None, *own))
    step, objective = run.completed(0), objectives.of_run(run.config)
    solved, unsolved = step.groups
    groups = (_planned(run, solved), _planned(run, replace(unsolved, rollouts=(), findings={}, draft_of=_NONE)))
    findings = {"gate": {name: groups[0].findings["gate"].column(name).to_numpy(False) for name in ("p", "accepted")}}
    scored = ScoredGroup(step.rewards[0], findings=findings, drafts=groups[0].drafts, draft_of=groups[0].draft_of)
    none, credit = np.zeros(0), objective.valued(scored)
    written = CompletedStep(
        0,
        groups,
        (scored.rewards, none),
        (credit.numbers, none),
        step.applied,
        (credit.drafts, None),
    )
    (run.directory / step_key(0)).write_bytes(encode_step(written))
    return run.uri


def _looping(problem: str, place: int, verdict: Verdict) -> Verdict:
    # as puzzles are labelled, whose strategy is a construct
    found = verdict.evidence
    return replace(verdict, evidence=found and replace(found, strategy=found.strategy and "for"))


def _planned(run: Run, group: Group) -> Group:
    drafts = tuple(_plan(text, seed) for seed, text in enumerate(PLANS, 100))
    gate = ContractGate(run.config, objectives.of_run(run.config))
    problem = build_problem_set(run.config.problems).splits["train"][group.slot]
    found = asyncio.run(gate.answers(problem, drafts, None))
    answers = {"p": found.p, "accepted": found.p >= gate.tau, "mass": [None] * len(drafts)}
    part = of_drafts(pa.RecordBatch.from_pydict(answers))
    behind = np.arange(group.size, dtype=np.int32) // 2
    return replace(group, findings={**group.findings, "gate": part}, drafts=drafts, draft_of=behind)


def _plan(text: str, seed: int) -> Draft:
    tokens = np.arange(7, dtype=np.int32)
    return Draft(Rollout(tokens, tokens, np.full(7, -0.5, np.float32), text, "stop", seed, 0), "plan")
