"""Validation of a trained gate on plans of held-out problems, its threshold, and its seal.

    found = GateValidation.of(p, label, recall=0.95)
    found.tau, found.accepted
    seal_gate(run_folder, held_out, methods=4, rows=sha256)        # writes gate.json

A gate is used only if it tells valid plans from others well enough (arXiv 2605.27000, section 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.values import Float64
from raypoly.recipes.cppo.gate_folder import FILE, GateFile, weights_hash
from raypoly.recipes.cppo.gate_question import TEMPLATE, WORDS
from raypoly.recipes.cppo.gate_rows import LabelledPlan
from raypoly.recipes.cppo.plan_contract import read_plan

RECALL = 0.95
"""That a threshold is chosen for by default."""
LEAST_AUC, LEAST_BALANCED_ACCURACY, LEAST_PRECISION, LEAST_RECALL = 0.75, 0.70, 0.65, 0.65


@dataclass(frozen=True)
class GateValidation:
    """On labelled plans of held-out problems, at the threshold `tau`."""

    tau: float
    auc: float
    balanced_accuracy: float
    precision: float
    recall: float

    @classmethod
    def of(cls, p: ArrayLike, label: ArrayLike, recall: float = 0.95, tau: float | None = None) -> Self:
        """From p and label (1: valid) of each plan. `tau`: default, the largest p at which recall is still `recall`.

        Raises `ValueError` unless both labels are there and every p is from 0 to 1.
        """
        found, valid = np.asarray(p, np.float64), np.asarray(label).astype(bool)
        if found.shape != valid.shape or not 0 < valid.sum() < len(valid):
            raise ValueError("validation needs a label for each plan, and both valid and invalid ones")
        if not np.all((found >= 0) & (found <= 1)):
            raise ValueError("a probability must be from 0 to 1")
        at = threshold(found, valid, recall) if tau is None else tau
        passed = found >= at
        hit, kept = passed[valid].mean(), (~passed[~valid]).mean()
        right = (passed & valid).sum()
        precision = float(right / passed.sum()) if passed.any() else 0.0
        return cls(at, auc(found, valid) or 0.0, float((hit + kept) / 2), precision, float(hit))

    @property
    def failures(self) -> Sequence[str]:
        """Numbers below their thresholds, in words."""
        limits = {
            "AUC": (self.auc, LEAST_AUC),
            "balanced accuracy": (self.balanced_accuracy, LEAST_BALANCED_ACCURACY),
            "precision": (self.precision, LEAST_PRECISION),
            "recall": (self.recall, LEAST_RECALL),
        }
        return [f"{name} {value:.3f} is below {least}" for name, (value, least) in limits.items() if value < least]

    @property
    def accepted(self) -> bool:
        return not self.failures


def auc(p: ArrayLike, label: ArrayLike) -> float | None:
    """The chance that a plan with label 1 has a higher p than one with 0; ties count half. None without both labels."""
    found, held = np.asarray(p, np.float64), np.asarray(label).astype(bool)
    if not 0 < held.sum() < len(held):
        return None
    return float(stats.mannwhitneyu(found[held], found[~held]).statistic / (held.sum() * (~held).sum()))


def threshold(p: Float64, valid: np.ndarray[tuple[int], np.dtype[np.bool_]], recall: float) -> float:
    """The largest p that accepts at least the share `recall` of the valid plans."""
    # an exact share such as 19 of 20 may come out below its own decimal number
    able = [value for value in np.unique(p) if (p[valid] >= value).mean() >= recall - 1e-12]
    return float(max(able)) if able else float(p.min())


def seal_gate(
    folder: Path,
    held_out: Sequence[LabelledPlan],
    methods: int,
    rows: str,
    template: str = TEMPLATE,
    recall: float = RECALL,
    tau: float | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> GateValidation:
    """Measure a trained gate, and write its `gate.json`.

    `folder`: a run's, whose exported model is taken, or a Hugging Face folder. `held_out`: plans of K `methods`, of
    problems that the gate was not trained on. `rows`: SHA-256 of the rows that it was trained on. `tau`: default, the
    largest with this `recall`. `kwargs`: variables of the chat template that rendered its rows.

    Raises `RaypolyError` where a number is too low: then the folder has no `gate.json`. Raises `UsageError` where there
    is no model, or nothing to measure it with.
    """
    model = folder / "model" if (folder / "model" / "config.json").is_file() else folder
    if not (model / "config.json").is_file():
        raise UsageError(f"{folder} has no trained gate: train one first, and give its run's folder or its model's.")
    p = held_out_probabilities(model, held_out, methods, template, kwargs)
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
        chat_template_kwargs=kwargs or {},
        tau=found.tau,
        recall=recall if tau is None else None,
        validation={**numbers, "plans": len(held_out)},
        rows=rows,
        weights=weights_hash(model),
    ).write(model)
    return found


def held_out_probabilities(
    model: Path,
    plans: Sequence[LabelledPlan],
    methods: int,
    template: str,
    kwargs: Mapping[str, Any] | None = None,
) -> Float64:
    """p of each plan as in a run: 0 for one that breaches the contract, about which nobody is asked."""
    from raypoly.recipes.cppo.gate_model import GateModel  # brings PyTorch, which a run's driver lacks

    gate = GateModel.load(model, WORDS, template, kwargs=kwargs)
    asked = [read_plan(it.plan, methods).keeps for it in plans]
    return np.array(
        [float(gate.ask(it.problem, [it.plan]).p[0]) if keeps else 0.0 for it, keeps in zip(plans, asked, strict=True)]
    )
