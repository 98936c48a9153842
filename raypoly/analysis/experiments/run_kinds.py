"""What the kinds of arms differ in: their commands and options, the keys that follow from a kind, and what it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from raypoly.algorithms import objectives
from raypoly.algorithms.objectives.objective_hooks import needed_stages
from raypoly.analysis.experiments.experiment_config import ArmConfig, Kind
from raypoly.core import settings
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.recipes.cppo.gates.audit import PlanAudit
from raypoly.recipes.cppo.gates.gate_folder import FILE, read_gate
from raypoly.rollouts import scaffolds
from raypoly.run.run_identity import RunDirectory, resolve_run

COMMANDS: Mapping[Kind, str] = {"audit": "audit-plans", "gate": "train-gate"}
"""Of `raypoly`, for kinds that are no training alone."""


def options_of(arm: ArmConfig) -> tuple[str, ...]:
    """The options of the command of its kind."""
    if arm.kind == "audit":
        return f"--least-pass={arm.least_pass}", f"--least-density={arm.least_density}"
    if arm.kind == "gate":
        given = {"recall": arm.recall, "tau": arm.tau, "held-out": arm.held_out}
        return tuple(f"--{name}={value}" for name, value in given.items() if value is not None)
    return ()


def of_kind(kind: Kind, after: Path | None, gate: Path | None, plans_of: Sequence[Path]) -> Iterator[str]:
    """The overrides that follow from what an arm is, from the weights that it begins with, from its gate, and from the
    runs whose plans it is trained on."""
    if after is not None:
        yield from (f"model.path={after}", "model.sha256=null")
    if gate is not None:
        yield from ("gate.name=model", f"gate.path={gate}")
    if plans_of:
        yield f"scaffold.plans_of={json.dumps(list(map(str, plans_of)))}"
    if kind in ("evaluate", "audit"):
        yield from ("train.steps=0", "train.schedule=constant", f"evaluate.every={int(kind == 'evaluate')}")
    if kind == "gate":
        yield "evaluate.every=0"


def resolve_with_gate(base: str | None, overrides: Sequence[str], gate: Path | None) -> RunDirectory:
    """The run of these overrides. While its gate is not there yet, nothing of the run is, and it is checked without."""
    if gate is not None and not (gate / FILE).exists():
        overrides = [text for text in overrides if not text.startswith("gate.")]
    return resolve_run(settings.load(base, overrides, lambda text: None))


def check_kind(arm: ArmConfig, config: Config) -> None:
    """Raise `UsageError` where a run of the arm's kind can't work."""
    scaffold, rollouts = scaffolds.of_run(config), config.train.rollouts
    if arm.kind == "audit":
        attempts = scaffold.planned_drafts(rollouts) and scaffold.planned_attempts(rollouts)
        if not attempts or "gate" not in needed_stages(objectives.of_run(config)):
            raise UsageError(
                "kind: audit needs plans, attempts behind them and a gate: set scaffold.name=tuple, "
                "objective.name=cppo and no scaffold.solve=false."
            )
    if arm.kind == "gate" and not hasattr(scaffold, "labelled") and arm.held_out is None:
        raise UsageError(
            "kind: gate is trained on labelled plans: set scaffold.name=labelled_plans, or scaffold.name=given and "
            "held_out."
        )


def check_thresholds(arm: ArmConfig, place: Path) -> None:
    """Raise `UsageError` where this folder has an audit, or a gate, of other thresholds than the arm's."""
    least = (arm.least_pass, arm.least_density)
    audit = PlanAudit.read(place) if arm.kind == "audit" else None
    if audit is not None and (audit.least_pass, audit.least_density) != least:
        raise UsageError(
            f"{place} was audited with least_pass={audit.least_pass:g} and least_density={audit.least_density:g}: "
            "give them back, or give the arm another name."
        )
    if arm.kind == "gate" and (place / "model" / FILE).exists():
        read_gate(place / "model").check_thresholds(place, arm.recall, arm.tau)
