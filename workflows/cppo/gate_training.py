"""`raypoly train-gate`: train a gate's model on labelled plans, and seal it if it is good enough on other problems'.

The training is a supervised run (`objective.name=supervised`): on labelled plans of puzzles (`scaffold.name=
labelled_plans`), measured on those of validation problems; or on rows of a file (`scaffold.name=given`), measured on
those of the file `held_out`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raypoly import data as problems
from raypoly.analysis.experiments.run_result import RESULT_KEY, CommandResult
from raypoly.commands.command_options import ConfigPath, DryRun, Overrides
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.planning.run_config import load_run_config
from raypoly.recipes.cppo.gate_folder import FILE, GateFile, read_gate
from raypoly.recipes.cppo.gate_question import COMPLETION_TEMPLATE, TEMPLATE
from raypoly.recipes.cppo.gate_rows import LabelledPlan, read_rows
from raypoly.recipes.cppo.gate_validation import RECALL, seal_gate
from raypoly.recipes.cppo.given_plans import LabelledPlans
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds.given import Given
from raypoly.run.run_files import is_finished
from raypoly.run.run_identity import resolve_run
from raypoly.run.store import open_store
from workflows import train

_TITLE = "Gates (docs/cppo.md), on plans of problems that they were not trained on"
_NEEDS = "train-gate needs labelled plans: set scaffold.name=labelled_plans, or scaffold.name=given and held-out."


@dataclass(frozen=True)
class _Material:
    held_out: Sequence[LabelledPlan]
    methods: int
    template: str
    rows: str
    """SHA-256 of the rows that it is trained on."""


def train_gate_command(
    overrides: Overrides = None,
    config: ConfigPath = None,
    recall: float = RECALL,
    tau: float | None = None,
    held_out: str | None = None,
    dry_run: DryRun = False,
) -> None:
    """Train a gate on labelled plans, and seal it if it is good enough: docs/cppo.md."""
    run = check_gate if dry_run else train_gate
    run(load_run_config(config, overrides or []), recall, tau, held_out)


def train_gate(config: Config, recall: float, tau: float | None, held_out: str | None = None) -> None:
    """Train, or go on, and seal. A sealed gate is left as it is; one that gets more steps is sealed again.

    Raises `UsageError` for a scaffold without labelled plans, or a gate that was sealed with another threshold;
    `RaypolyError` as `seal_gate`.
    """
    material = _of_puzzles(config) if held_out is None else _of_rows(config, Path(held_out).expanduser())
    before = resolve_run(config)
    model = before.path / "model"
    if not is_finished(before):  # its weights are about to change
        (before.path / RESULT_KEY).unlink(missing_ok=True)
        (model / FILE).unlink(missing_ok=True)
    train.run(config)
    if not is_finished(resolve_run(config)):
        return
    if (model / FILE).exists():
        read_gate(model).check_thresholds(model, recall, tau)
    else:
        _seal(material, model, recall, tau, config.problems.chat_template_kwargs)
    if not (before.path / RESULT_KEY).exists():
        gate_result(read_gate(model)).write(open_store(before.path, make=False))


def check_gate(config: Config, recall: float, tau: float | None, held_out: str | None) -> None:
    """Raise `UsageError` where the config trains no gate, or its folder has one of another threshold."""
    if not isinstance(scaffolds.of_run(config), LabelledPlans) and held_out is None:
        raise UsageError(_NEEDS)
    model = resolve_run(config).path / "model"
    if (model / FILE).exists():
        read_gate(model).check_thresholds(model, recall, tau)


def gate_result(gate: GateFile) -> CommandResult:
    """What an experiment reads of a gate that is accepted."""
    plans, numbers = int(gate.validation["plans"]), {**gate.validation, "tau": gate.tau}
    line = f"accepted with AUC {numbers['auc']:.3f} at tau {gate.tau:.3g}"
    return CommandResult("train-gate", _TITLE, {"plans": plans} | {**numbers, "plans": plans}, line)


def _seal(material: _Material, model: Path, recall: float, tau: float | None, kwargs: Mapping[str, Any]) -> None:
    plans = material.held_out
    found = seal_gate(
        model, plans, material.methods, material.rows, material.template, recall=recall, tau=tau, kwargs=kwargs
    )
    print(
        f"gate: {model / FILE} (on {len(plans)} plans of {len({it.problem.id for it in plans})} other problems: AUC "
        f"{found.auc:.3f}, balanced accuracy {found.balanced_accuracy:.3f}, precision {found.precision:.3f}, recall "
        f"{found.recall:.3f} at tau {found.tau:.3g})"
    )


def _of_puzzles(config: Config) -> _Material:
    scaffold, rollouts = scaffolds.of_run(config), config.train.rollouts
    if not isinstance(scaffold, LabelledPlans):
        raise UsageError(_NEEDS)
    splits = problems.build_problem_set(config.problems).splits
    rows = [[ask.prompt, ask.text] for it in splits["train"] for ask in scaffold.ask(it, (), rollouts)]
    held_out = [plan for it in splits["validation"] for plan in scaffold.labelled(it, rollouts)]
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    return _Material(held_out, scaffold.config.methods, COMPLETION_TEMPLATE, digest)


def _of_rows(config: Config, held_out: Path) -> _Material:
    scaffold = scaffolds.of_run(config)
    if not isinstance(scaffold, Given):
        raise UsageError("held_out measures a gate that is trained on rows: set scaffold.name=given and scaffold.rows.")
    plans, file = read_rows(held_out), Path(scaffold.config.rows).expanduser()
    trained = {it.problem.id for it in read_rows(file)}
    if both := sorted({it.problem.id for it in plans} & trained):
        raise UsageError(f"{both[0]} is in {file} and in {held_out}: a gate is measured on problems of its own.")
    methods = max(len(it.plan.splitlines()) for it in plans)
    return _Material(plans, methods, TEMPLATE, hashlib.sha256(file.read_bytes()).hexdigest())
