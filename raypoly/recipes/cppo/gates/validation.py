"""How good a gate is on held-out plans, and the threshold that it gets.

    found = GateValidation.of(p, label, recall=0.95)
    found.tau, found.accepted

Arxiv 2605.27000, section 4.3: a gate is used only if it tells valid plans from others well enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from raypoly.core.values import Float64

RECALL = 0.95
"""The default of the recall that a threshold is chosen for."""
LEAST_AUC, LEAST_BALANCED_ACCURACY, LEAST_PRECISION, LEAST_RECALL = 0.75, 0.70, 0.65, 0.65


@dataclass(frozen=True)
class GateValidation:
    """On labelled plans of held-out problems, at the threshold `tau`."""

    tau: float
    auc: float
    """The chance that a valid plan has a higher p than an invalid one; ties count half."""
    balanced_accuracy: float
    precision: float
    recall: float

    @classmethod
    def of(cls, p: ArrayLike, label: ArrayLike, recall: float = 0.95, tau: float | None = None) -> Self:
        """From p of each plan and its label (1: valid). `tau`: default, the largest of the probabilities at which
        recall is still `recall`. Raises `ValueError` unless both labels are there and every p is from 0 to 1."""
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
        return cls(at, _auc(found, valid), float((hit + kept) / 2), precision, float(hit))

    @property
    def failures(self) -> Sequence[str]:
        """What is below its threshold, in words; empty for a gate that may be used."""
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
    """The chance that a plan with label 1 has a higher p than one with label 0; ties count half. None where one of the
    labels is missing."""
    found, held = np.asarray(p, np.float64), np.asarray(label).astype(bool)
    return _auc(found, held) if 0 < held.sum() < len(held) else None


def _auc(p: Float64, held: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    return float(stats.mannwhitneyu(p[held], p[~held]).statistic / (held.sum() * (~held).sum()))


def threshold(p: Float64, valid: np.ndarray[tuple[int], np.dtype[np.bool_]], recall: float) -> float:
    """The largest of the probabilities at which at least the share `recall` of the valid plans is accepted."""
    able = [value for value in np.unique(p) if (p[valid] >= value).mean() >= recall - 1e-12]
    return float(max(able)) if able else float(p.min())
