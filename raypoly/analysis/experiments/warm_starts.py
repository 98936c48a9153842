"""The warm starts of an experiment: for each tiny model that its runs begin with, a run of no step that makes it.

for run in warm_starts(runs): ...
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.core import settings
from raypoly.run.run_identity import resolve_run


def warm_starts(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """For each tiny model that the runs begin with, a run of no step that makes it."""
    found = [_of_no_step(run) for run in runs if run.config.model.path is None]
    return list({run.place: run for run in found}.values())


def _of_no_step(run: PlannedRun) -> PlannedRun:
    """Named by what decides the model; it measures nothing, and has the engine that starts soonest."""
    problems = run.config.problems.model_dump(exclude={"budgets"})  # which the policy never sees
    key = json.dumps([run.config.warm_start.model_dump(), problems], sort_keys=True)
    place = run.place.with_name(f"warm-start-{hashlib.sha256(key.encode()).hexdigest()[:8]}")
    kept = [text for text in run.overrides if text.startswith(("warm_start.", "problems."))]
    own = ["train.steps=0", "train.schedule=constant", "evaluate.every=0", "generator.engine=transformers"]
    overrides = (*(text for text in kept if not text.startswith("problems.budgets=")), *own, f"run.dir={place}")
    directory = resolve_run(settings.load(run.base, overrides, lambda text: None))
    return PlannedRun("warm start", run.seed, place, run.base, overrides, directory, start="")
