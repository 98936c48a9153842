"""A run whose planner has written given plans, as training without attempts stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from raypoly.core import settings
from raypoly.core.values import Draft, Group, Rollout
from raypoly.run.run_identity import resolve_run
from raypoly.run.store.catalogue import step_key
from raypoly.run.store.rollout_files import encode_step
from raypoly.run.store.step_records import Applied, CompletedStep

CUT = "CUT: "
"""What a plan begins with that ended at its token limit."""


def write_planner_run(folder: Path, *steps: Mapping[str, Sequence[str]]) -> str:
    """Write the run and return its URI. `steps`: the plans of each step, by problem id."""
    directory = resolve_run(settings.load(None, [f"run.dir={folder}", f"train.steps={len(steps)}"], lambda text: None))
    store, lease = directory.open("test")
    for step, plans in enumerate(steps):
        groups = tuple(_group(step, slot, *each) for slot, each in enumerate(plans.items()))
        none = tuple(np.zeros(0) for _ in groups)
        applied = Applied(step, f"{step:064x}", {"step": step}, len(groups))
        completed = CompletedStep(step, groups, none, none, applied, (None,) * len(groups))
        store.commit(step_key(step), encode_step(completed))
    lease.release()
    return directory.uri


def _group(step: int, slot: int, problem: str, plans: Sequence[str]) -> Group:
    return Group(step, slot, problem, (), {}, tuple(map(_draft, plans)))


def _draft(plan: str) -> Draft:
    tokens = np.arange(3, dtype=np.int32)
    drawn = Rollout(tokens, tokens, np.zeros(3, np.float32), plan.removeprefix(CUT), "stop", 0, 0)
    return Draft(replace(drawn, finish_reason="length") if plan.startswith(CUT) else drawn, "plan")
