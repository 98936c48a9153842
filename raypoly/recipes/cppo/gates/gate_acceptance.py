"""The last step of a gate's training: it is measured on plans of held-out problems, and sealed if it is good.

found = seal_gate(run_folder, held_out, methods=4, rows=sha256)
found.tau
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.values import Float64
from raypoly.recipes.cppo.gates.gate_folder import FILE, GateFile, weights_hash
from raypoly.recipes.cppo.gates.gate_question import TEMPLATE, WORDS
from raypoly.recipes.cppo.gates.gate_rows import LabelledPlan
from raypoly.recipes.cppo.gates.validation import RECALL, GateValidation
from raypoly.rollouts.scaffolds.plan_contract import read_plan


def seal_gate(
    folder: Path,
    held_out: Sequence[LabelledPlan],
    methods: int,
    rows: str,
    template: str = TEMPLATE,
    recall: float = RECALL,
    tau: float | None = None,
) -> GateValidation:
    """Measure a trained gate, and write its `gate.json`. Returns what was measured.

    `folder`: a run's, whose exported model is taken, or a Hugging Face folder. `held_out`: plans of `methods` (K)
    methods, whose problems the gate was not trained on. `rows`: SHA-256 of the rows that it was trained on. `tau`:
    default, the largest with this `recall`.

    Raises `RaypolyError` where a number is below its threshold: then the folder is left without `gate.json`, and the
    next step is named. Raises `UsageError` where there is no model, or nothing to measure it with.
    """
    model = folder / "model" if (folder / "model" / "config.json").is_file() else folder
    if not (model / "config.json").is_file():
        raise UsageError(f"{folder} has no trained gate: train one first, and give its run's folder or its model's.")
    p = held_out_probabilities(model, held_out, methods, template)
    try:
        found = GateValidation.of(p, [it.valid for it in held_out], recall, tau)
    except ValueError as error:
        raise UsageError(f"The gate in {model} can't be measured: {error}.") from error
    if found.failures:
        (model / FILE).unlink(missing_ok=True)
        raise RaypolyError(
            f"The gate in {model} is not accepted, on {len(held_out)} held-out plans at tau {found.tau:.4g}: "
            f"{'; '.join(found.failures)}. Train it longer, or on more plans and on invalid ones like those that it "
            "accepts, then measure it again."
        )
    numbers = {name: value for name, value in asdict(found).items() if name != "tau"}
    GateFile(
        words=WORDS,
        template=template,
        tau=found.tau,
        recall=recall if tau is None else None,
        validation={**numbers, "plans": len(held_out)},
        rows=rows,
        weights=weights_hash(model),
    ).write(model)
    return found


def held_out_probabilities(model: Path, plans: Sequence[LabelledPlan], methods: int, template: str) -> Float64:
    """p of each plan as in a run, [len(plans)]: 0 for one that breaches the contract, about which nobody is asked."""
    from raypoly.recipes.cppo.gates.gate_model import (
        GateModel,  # brings PyTorch and transformers, which a run's driver lacks
    )

    gate = GateModel.load(model, WORDS, template)
    asked = [read_plan(it.plan, methods).keeps for it in plans]
    return np.array(
        [float(gate.ask(it.problem, [it.plan]).p[0]) if keeps else 0.0 for it, keeps in zip(plans, asked, strict=True)]
    )
