"""The audit before joint training: whether a planner's plans give it anything to learn from (arXiv 2605.27000).

found = PlanAudit.of(outcomes=[[1, 0], [0, 0]], accepted=[1, 1], p=[.9, .6])
found.passes, found.go_back_to, found.auc
PlanAudit.read(Path("out/audit-s0"))                  # of a run's folder
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from raypoly.core.errors import CorruptData, UsageError
from raypoly.recipes.cppo.gates.validation import auc
from raypoly.run.store.sealed_files import unseal

AUDIT_KEY = "audit.json"
"""The sealed file in the folder of a run that audits."""
AUDITED = 64
"""Training problems that are audited; all of them where there are fewer."""


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
    auc: float | None = None
    """Of the gate's p against whether an attempt passed: .5 tells nothing of it. None where p is unknown, or all tuples
    or none passed."""

    @classmethod
    def of(
        cls,
        outcomes: Sequence[ArrayLike],
        accepted: ArrayLike,
        least_pass: float = 0.0,
        least_density: float = 0.0,
        p: ArrayLike | None = None,
    ) -> Self:
        """From the rewards of each tuple's attempts, [M][K], J, [M], and perhaps p, [M].

        Raises `ValueError` where there are none."""
        passed = np.array([np.max(np.asarray(each)) > 0 for each in outcomes])
        gate = np.asarray(accepted).astype(bool)
        if not len(passed) or passed.shape != gate.shape:
            raise ValueError(f"an audit needs tuples, each with J: got {len(passed)} tuples and J of {gate.shape}")
        found = float(passed.mean()), float(gate.mean()), float((passed & gate).mean())
        return cls(*found, least_pass, least_density, None if p is None else auc(p, passed))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The audit in a run's folder; None where there is none yet. Raises `UsageError` where it is damaged."""
        file = folder / AUDIT_KEY
        if not file.exists():
            return None
        try:
            values = unseal(file.read_bytes(), str(file))
            known = {name: float(values[name]) for name in cls.__dataclass_fields__ if name != "auc"}
            return cls(**known, auc=None if (found := values.get("auc")) is None else float(found))
        except (CorruptData, KeyError, TypeError) as error:
            raise UsageError(
                f"{file} can't be read ({error}): remove it, and the same command audits again."
            ) from error

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

    @property
    def parts(self) -> Mapping[str, float]:
        """The shares of tuples by gate and outcome, which add up to 1."""
        solved, failed = self.density, self.accepted - self.density
        return {
            "accepted_solved": solved,
            "accepted_failed": failed,
            "rejected_solved": self.pass_at_k - solved,
            "rejected_failed": max(0.0, 1 - self.pass_at_k - failed),
        }

    @property
    def pass_if_accepted(self) -> float | None:
        """The share of accepted tuples that passed; None where none is accepted."""
        return self.density / self.accepted if self.accepted > 0 else None

    @property
    def pass_if_rejected(self) -> float | None:
        """The share of rejected tuples that passed; None where none is rejected."""
        return (self.pass_at_k - self.density) / (1 - self.accepted) if self.accepted < 1 else None

    @property
    def values(self) -> Mapping[str, Any]:
        """The numbers and the verdict, as JSON values."""
        rates = {"pass_if_accepted": self.pass_if_accepted, "pass_if_rejected": self.pass_if_rejected}
        return {**asdict(self), **rates, **self.parts, "passes": self.passes, "go_back_to": self.go_back_to}

    def __str__(self) -> str:
        """The numbers, in a line."""
        return (
            f"{self.pass_at_k:.3f} of the tuples passed, {self.accepted:.3f} were accepted, {self.density:.3f} were "
            "both"
        )
