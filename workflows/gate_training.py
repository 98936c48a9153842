"""Trains a gate's model on labelled plans, and makes it a gate if it is good enough on plans of other problems.

    train_gate(config, recall=0.95, tau=None)      # writes gate.json into the model of the run's folder

The training is a supervised run (`program.name=labelled_plans`, `objective.name=supervised`). The problems of
validation are those that it is measured on.
"""

from __future__ import annotations

import hashlib
import json

from raypoly import problems, programs
from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.gates.gate_acceptance import seal_gate
from raypoly.gates.gate_folder import FILE, read_gate
from raypoly.gates.gate_question import COMPLETION_TEMPLATE
from raypoly.programs.labelled_plans import LabelledPlans
from raypoly.run import is_finished
from raypoly.run_identity import resolve_run
from workflows import train


def train_gate(config: Config, recall: float, tau: float | None) -> None:
    """Train, or go on, and seal. A gate that is sealed is left as it is; one that gets more steps is sealed again.

    Raises `UsageError` for a program that gives no labelled plans, or if the gate was sealed with another threshold,
    `RaypolyError` as `seal_gate`.
    """
    program, rollouts = programs.of_run(config), config.train.rollouts
    if not isinstance(program, LabelledPlans):
        raise UsageError("A gate is trained on labelled plans: set program.name=labelled_plans.")
    directory = resolve_run(config)
    model = directory.path / "model"
    if not is_finished(directory):  # its weights are about to change
        (model / FILE).unlink(missing_ok=True)
    train.run(config)
    if not is_finished(directory):
        return
    if (model / FILE).exists():
        read_gate(model).check_thresholds(model, recall, tau)
        return
    splits = problems.build_problem_set(config.problems).splits
    rows = [[ask.prompt, ask.text] for it in splits["train"] for ask in program.ask(it, (), rollouts)]
    held_out = [plan for it in splits["validation"] for plan in program.labelled(it, rollouts)]
    found = seal_gate(
        model,
        held_out,
        program.config.methods,
        hashlib.sha256(json.dumps(rows).encode()).hexdigest(),
        template=COMPLETION_TEMPLATE,
        recall=recall,
        tau=tau,
    )
    print(
        f"gate: {model / FILE} (on {len(held_out)} plans of {len(splits['validation'])} other problems: AUC "
        f"{found.auc:.3f}, balanced accuracy {found.balanced_accuracy:.3f}, precision {found.precision:.3f}, recall "
        f"{found.recall:.3f} at tau {found.tau:.3g})"
    )
