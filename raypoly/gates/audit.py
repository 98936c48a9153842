"""The audit before joint training: whether a planner's plans give it anything to learn from (arXiv 2605.27000).

PlanAudit.of(outcomes=[[1, 0], [0, 0]], accepted=[1, 1]).passes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class PlanAudit:
    """Of M tuples of K attempts, over all problems."""

    pass_at_k: float
    """The share of tuples of which an attempt passed."""
    accepted: float
    """The share that the gate accepts."""
    density: float
    """The share with R_plan > 0: accepted, and an attempt passed."""
    least_pass: float = 0.0
    least_density: float = 0.0

    @classmethod
    def of(
        cls,
        outcomes: Sequence[ArrayLike],
        accepted: ArrayLike,
        least_pass: float = 0.0,
        least_density: float = 0.0,
    ) -> Self:
        """From the rewards of each tuple's attempts, [M][K], and J, [M]. Raises `ValueError` where there are none."""
        passed = np.array([np.max(np.asarray(each)) > 0 for each in outcomes])
        gate = np.asarray(accepted).astype(bool)
        if not len(passed) or passed.shape != gate.shape:
            raise ValueError(f"an audit needs tuples, each with J: got {len(passed)} tuples and J of {gate.shape}")
        found = float(passed.mean()), float(gate.mean()), float((passed & gate).mean())
        return cls(*found, least_pass, least_density)

    @property
    def passes(self) -> bool:
        return self.pass_at_k > self.least_pass and self.density > self.least_density

    @property
    def go_back_to(self) -> str | None:
        """The stage to repeat: the gate and the warm-up where fewer plans are accepted than solved, else supervised
        training; None where the audit passes."""
        if self.passes:
            return None
        return "gate and warm_up" if self.accepted < self.pass_at_k else "sft"
